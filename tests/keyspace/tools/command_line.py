"""The real command line, as a process of its own, and a schema file for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCHEMA = """
import msgspec
from mpreg.keyspace.codec import text
from mpreg.keyspace.keyspace import Keyspace

class Job(msgspec.Struct):
    state: str

APP = Keyspace("app", prefix="app:")
APP.hash("job:{job:int}", Job, name="job", ttl=3600)
APP.string("temp:{name:bytes}", text, name="temp", ttl=60)
APP.string("lock:{name}", text, name="lock", ttl=300, protection="lock")
"""


class Ran(subprocess.CompletedProcess[bytes]):
    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def error(self) -> dict[str, Any]:
        """What --json puts on stderr."""
        found: dict[str, Any] = json.loads(self.stderr.splitlines()[-1])["error"]
        return found


class CommandLine:
    """`mpreg keys …` against one store, in a directory of its own."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        (directory / "schema.py").write_text(SCHEMA)

    def arguments(self, name: str, *args: str | bytes) -> list[str | bytes]:
        schema = [] if name == "restore" else ["--schema", "schema.py"]
        return [sys.executable, "-m", "mpreg", "keys", name, "--store", self.url, *schema, *args]

    def run(self, name: str, *args: str | bytes, stdin: bytes = b"") -> Ran:
        done = subprocess.run(
            self.arguments(name, *args), cwd=self.directory, input=stdin, capture_output=True, timeout=60, check=False
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return Ran(done.args, done.returncode, done.stdout, done.stderr)

    def start(self, name: str, *args: str | bytes) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.arguments(name, *args),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

"""The guide of `mpreg keys` is run as it stands: its schema, its commands, and what they say (`…` is anything)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.store.servers import valkey

GUIDE = (Path(__file__).parents[2] / "docs" / "keys.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Each command with what it says."""
    found: list[tuple[str, str]] = []
    for language, block in BLOCK.findall(GUIDE):
        if language != "console":
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("mpreg "):
                found.append((command, output))
    return found


def matches(output: str, said: str) -> bool:
    """The same lines. How wide a column is depends on what is in it, so blanks are not compared one by one; in which
    order keys are found, and how many bytes they take, is up to the server."""
    wanted, left = (
        [re.sub(r"\d+ B\b", "some B", " ".join(line.split())) for line in text.splitlines() if line]
        for text in (output, said)
    )
    for line in sorted(wanted, key=lambda line: "…" in line):
        found = next((one for one in left if re.fullmatch(re.escape(line).replace("…", ".*"), one)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def test_the_guide_says_what_happens(tmp_path: Path) -> None:
    schema = next(block for language, block in BLOCK.findall(GUIDE) if language == "python")
    (tmp_path / "shop.py").write_text(schema)
    with valkey() as server:
        for command in (
            "HSET shop:order:1 state packing worker w1",
            "HSET shop:order:2 state new",
            "SET shop:worker:w1 alive EX 30",
            "SADD shop:orders:open 1 2 9",
            'SET shop:cart:a ["tea"]',
            'SET shop:cart:b ["tea","cup"] EX 3000',
            "SET shop:lock:order:1 w1 EX 60",
            "SET shop:stray ?",
        ):
            server.call(*command.split())
        environment = {**os.environ, "MPREG_STORE": server.url, "MPREG_SCHEMA": "shop.py"}
        run = commands()
        assert len(run) > 8
        for command, output in run:
            server.call("EXPIRE", "shop:worker:w1", 30)  # however slow this machine is
            server.call("EXPIRE", "shop:lock:order:1", 60)
            line = command.replace("mpreg", f"{sys.executable} -m mpreg", 1)
            done = subprocess.run(
                line,
                shell=True,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            assert matches(output, done.stdout), f"{command}\n{done.stdout}"

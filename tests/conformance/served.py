"""A node in a process of its own: started, asked for its addresses, stopped by signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from tests.certificates import Certificates
from tests.conformance.raw import Raw

ROOT = Path(__file__).resolve().parents[2]
STOP_S = 20


class Served:
    def __init__(self, certificates: Certificates, *options: str) -> None:
        self.certificates = certificates
        self._kept = ""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._folder = tempfile.TemporaryDirectory()
        ready_file = Path(self._folder.name) / "ready.json"
        argv = [sys.executable, "-m", "tests.conformance.app", str(ready_file), certificates.cert, certificates.key]
        self.process = subprocess.Popen(
            [*argv, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, cwd=ROOT
        )
        assert self.process.stdout
        lines = [
            self.process.stdout.readline() for _ in range(5)
        ]  # one a listener, and the store; then the file is about to be there
        if not all(lines):
            self.process.wait()
            raise RuntimeError(f"The node did not start: {self.log}")
        self.listeners = dict(line.decode().split() for line in lines)
        self.ready_file = ready_file

    @property
    def log(self) -> str:
        if not self._log.closed:
            self._log.seek(0)
            self._kept = self._log.read().decode()
        return self._kept

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    def ready(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.ready_file.read_text())
        return found

    def dial(self, scheme: str, encoding: str) -> Raw:
        return Raw(self.listeners[scheme], encoding, self.certificates.ca)

    def memory_peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self._kept = self.log
        self._log.close()
        self._folder.cleanup()

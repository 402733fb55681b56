"""Processes of a run: roles, which take orders as JSON lines on stdin and answer on stdout, and foreign servers.

Each starts a session of its own, so that its whole family is ended, metered and pinned by one number. A role ends
by itself when its stdin closes, hence also when the run is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).resolve().parent.parent
STOP_S = 3.0
LOG_TAIL_BYTES = 1500


class RoleFailed(Exception):
    """A process of the case ended, answered an error, or did not answer in time."""


class Process:
    """One foreign program, ended with its children."""

    def __init__(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> None:
        self.name = name
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `stop` closes it
        self.popen = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=self._stdout(),
            stderr=self.log,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,
        )

    def _stdout(self) -> Any:
        return self.log

    @property
    def session(self) -> int:
        return self.popen.pid

    def log_tail(self) -> str:
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - LOG_TAIL_BYTES))
        return self.log.read().decode(errors="replace").strip()

    def stop(self) -> None:
        """First a closed stdin and a kind signal, then kill."""
        assert self.popen.stdin
        self.popen.stdin.close()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(STOP_S)
        self._signal(signal.SIGKILL)
        self.popen.wait()
        self.log.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.session, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Role(Process):
    """A role function of this package, `module:function`, in a process of its own; `ready` is its first answer."""

    def __init__(
        self,
        role: str,
        config: Mapping[str, Any],
        *,
        loop: str = "uvloop",
        python: str = sys.executable,
        start_s: float = 30.0,
    ) -> None:
        argv = [python, "-m", "bench.role", role, json.dumps(config), loop]
        super().__init__(role, argv, cwd=str(ROOT))
        self.buffer = b""
        self.selector = selectors.DefaultSelector()
        assert self.popen.stdout
        self.selector.register(self.popen.stdout, selectors.EVENT_READ)
        try:
            self.ready = self._answer(start_s)
        except BaseException:
            self.stop()
            raise

    def _stdout(self) -> Any:
        return subprocess.PIPE

    def ask(self, order: Mapping[str, Any], *, timeout_s: float = 60.0) -> dict[str, Any]:
        self.tell(order)
        return self._answer(timeout_s)

    def tell(self, order: Mapping[str, Any]) -> None:
        assert self.popen.stdin
        self.popen.stdin.write(json.dumps(order).encode() + b"\n")
        self.popen.stdin.flush()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        assert self.popen.stdout
        while b"\n" not in self.buffer:
            if not self.selector.select(max(0.0, deadline - time.monotonic())):
                raise RoleFailed(f"{self.name} gave no answer in {timeout_s:g} s; {self.log_tail()}")
            data = os.read(self.popen.stdout.fileno(), 1 << 16)
            if not data:
                raise RoleFailed(f"{self.name} ended with {self.popen.wait()}; {self.log_tail()}")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise RoleFailed(f"{self.name}: {answer['failed']}")
        return answer

    def stop(self) -> None:
        super().stop()
        self.selector.close()
        assert self.popen.stdout
        self.popen.stdout.close()

"""Eight processes want one lock, while holders are paused and killed: what they wrote down holds together."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.chaos.lock_history import Event, violations
from tests.store.servers import Server, eventually, redis7, valkey

PROCESSES = 8
NAME = "{r}the-lock"


class Crew:
    """The workers. Each has a number of its own, also after another one took its place."""

    def __init__(self, server: Server, ttl_s: float, directory: Path) -> None:
        self.server = server
        self.ttl_s = ttl_s
        self.directory = directory
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.ended: list[subprocess.Popen[bytes]] = []
        self.count = 0

    def start(self) -> subprocess.Popen[bytes]:
        self.count += 1
        arguments = [self.server.url, NAME, str(self.ttl_s), str(self.count), str(self.directory / str(self.count))]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.lock_worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.running[self.count] = process
        return process

    def holder(self) -> int:
        """The number of a worker that holds the lock at this moment."""
        found = 0

        def somebody() -> bool:
            nonlocal found
            value: bytes | None = self.server.call("GET", NAME)
            found = int(value.partition(b":")[0][1:]) if value else 0
            return found in self.running

        eventually(somebody, "someone holds the lock")
        return found

    def passes_on(self, number: int) -> None:
        eventually(lambda: self.holder() != number, f"the lock goes from {number} to someone else")

    def pause_holder(self) -> None:
        """For as long as it takes until someone else has the lock."""
        number = self.holder()
        self.running[number].send_signal(signal.SIGSTOP)
        self.passes_on(number)
        self.running[number].send_signal(signal.SIGCONT)

    def kill_holder(self) -> None:
        number = self.holder()
        process = self.running.pop(number)
        process.kill()
        self.ended.append(process)
        self.start()
        self.passes_on(number)

    def finish(self) -> list[Event]:
        for process in self.running.values():
            assert process.stdin is not None
            process.stdin.close()
        for number, process in self.running.items():
            assert process.wait(30) == 0, f"worker {number} failed"
        return self.history()

    def history(self) -> list[Event]:
        read = msgspec.json.Decoder(Event).decode
        return [read(line) for file in self.directory.iterdir() for line in file.read_bytes().splitlines()]

    def end(self) -> None:
        for process in [*self.running.values(), *self.ended]:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()


@contextlib.contextmanager
def crew(
    ttl_s: float, directory: Path, start: Callable[[], contextlib.AbstractContextManager[Server]] = valkey
) -> Iterator[Crew]:
    with start() as server:
        made = Crew(server, ttl_s, directory)
        try:
            for process in [made.start() for _ in range(PROCESSES)]:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
            yield made
        finally:
            made.end()


def check(history: list[Event], pauses: int) -> Counter[str]:
    assert violations(history) == []
    counts = Counter(event.what for event in history)
    # Not by chance: there were holders, and those who overslept.
    assert counts["acquired"] > pauses
    assert counts["lost"] >= 1
    assert counts["wrote"] >= counts["acquired"] / 2
    return counts


@pytest.mark.parametrize("start", [valkey, pytest.param(redis7, marks=pytest.mark.slow)])
def test_holders_that_are_paused_or_killed_never_make_two(
    tmp_path: Path, start: Callable[[], contextlib.AbstractContextManager[Server]]
) -> None:
    with crew(0.4, tmp_path, start) as workers:
        for _ in range(3):
            workers.pause_holder()
            workers.kill_holder()
        check(workers.finish(), 3)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_minute_of_contention_with_pauses_and_kills(tmp_path: Path) -> None:
    end = time.monotonic() + 60
    pauses = 0
    with crew(0.5, tmp_path) as workers:
        while time.monotonic() < end:
            if random.random() < 0.6:
                workers.pause_holder()
                pauses += 1
            else:
                workers.kill_holder()
        check(workers.finish(), pauses)

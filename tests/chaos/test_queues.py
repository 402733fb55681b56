"""Producers, consumers, nodes and the store itself are killed at random; what was written down holds together."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.chaos.queue_history import Event, Left, violations
from tests.node.processes import ENVIRONMENT, ROOT
from tests.store.servers import Server, eventually, free_port, valkey

from mpreg.client import connect
from mpreg.errors import MpregError

PRODUCERS = CONSUMERS = 4
NODES = 3
MAX_RETRIES = 30


class Crew:
    def __init__(self, store: Server, queue: str, directory: Path) -> None:
        self.store = store
        self.queue = queue
        self.directory = directory
        self.ports = [free_port() for _ in range(NODES)]
        self.urls = [f"tcp://127.0.0.1:{port}" for port in self.ports]
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.workers: dict[str, list[subprocess.Popen[bytes]]] = {"produce": [], "consume": []}
        self.ended: list[subprocess.Popen[bytes]] = []
        self.count = 0

    def start_node(self, number: int) -> None:
        argv = [sys.executable, "-m", "mpreg", "serve", "--ws", "off", "--tcp", str(self.ports[number])]
        with (self.directory / f"node-{number}.log").open("ab") as log:
            self.nodes[number] = subprocess.Popen(
                [*argv, "--store", self.store.url],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=ENVIRONMENT,
                cwd=ROOT,
            )

    def start_worker(self, role: str) -> None:
        self.count += 1
        urls = random.sample(self.urls, len(self.urls))
        file = self.directory / f"{self.count:04}.history"
        self.workers[role].append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.queue_worker", role, self.queue, str(self.count), str(file), *urls],
                stdin=subprocess.PIPE,
                env=ENVIRONMENT,
                cwd=ROOT,
            )
        )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.ended.append(process)

    def kill_worker(self, role: str) -> None:
        process = random.choice(self.workers[role])
        self.workers[role].remove(process)
        self.kill(process)
        self.start_worker(role)

    def kill_node(self) -> None:
        number = random.randrange(NODES)
        self.kill(self.nodes[number])
        self.start_node(number)

    def kill_store(self) -> None:
        self.store.kill()
        self.store.start()

    def history(self) -> list[Event]:
        read = msgspec.json.Decoder(Event).decode
        return [
            read(line) for file in sorted(self.directory.glob("*.history")) for line in file.read_bytes().splitlines()
        ]

    def acknowledged(self) -> int:
        return sum(file.read_bytes().count(b'"acknowledged"') for file in self.directory.glob("*.history"))

    def progress(self, more: int) -> None:
        """Life goes on: so many more messages have been acknowledged."""
        goal = self.acknowledged() + more
        eventually(lambda: self.acknowledged() >= goal, "messages are acknowledged", 60)

    def stop(self, role: str) -> None:
        for process in self.workers[role]:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.workers[role]:
            assert process.wait(60) == 0

    def end(self) -> None:
        for process in [*self.nodes.values(), *self.workers["produce"], *self.workers["consume"], *self.ended]:
            process.kill()
            process.wait()
            with contextlib.suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()

    def ask(self, work: Any) -> Any:
        async def asked() -> Any:
            async with connect(self.urls, patience_s=30) as client:
                return await work(client)

        return asyncio.run(asked())


@contextlib.contextmanager
def crew(queue: str, directory: Path) -> Iterator[Crew]:
    with valkey(durability="always") as store:
        made = Crew(store, queue, directory)
        try:
            for number in range(NODES):
                made.start_node(number)
            kind = queue.partition("-")[0]
            made.ask(lambda client: client.queue(queue).create(kind, max_size=1_000_000, max_retries=MAX_RETRIES))
            for role, count in (("produce", PRODUCERS), ("consume", CONSUMERS)):
                for _ in range(count):
                    made.start_worker(role)
            made.progress(100)
            yield made
        finally:
            made.end()


def drained(crew: Crew) -> Left:
    async def look(client: Any) -> Left:
        queue = client.queue(crew.queue)
        async with asyncio.timeout(90):
            while True:
                with contextlib.suppress(MpregError):
                    stats = await queue.stats()
                    if stats.current_queue_size + stats.current_in_flight_count == 0:
                        break
                await asyncio.sleep(0.1)  # nothing tells when a statistic changes
        dead = await client.queue(f"{crew.queue}.dlq").peek(500)
        return Left(frozenset(one.payload["key"] for one in dead), stats.messages_expired)

    left: Left = crew.ask(look)
    return left


def check(crew: Crew, kills: int) -> Counter[str]:
    crew.stop("produce")
    left = drained(crew)
    crew.stop("consume")
    history = crew.history()
    assert violations(history, left, MAX_RETRIES) == []
    counts = Counter(event.what for event in history)
    assert counts["sent"] > 100 * kills / 10  # not by chance: there was work
    print(f"{dict(counts)}, {len(left.dead)} dead letters, {kills} kills")  # noqa: T201
    return counts


@pytest.mark.timeout(170)
@pytest.mark.parametrize("kind", ["priority", pytest.param("fifo", marks=pytest.mark.slow)])
def test_what_is_killed_loses_nothing(kind: str, tmp_path: Path) -> None:
    with crew(f"{kind}-chaos", tmp_path) as running:
        for kill in (lambda: running.kill_worker("consume"), running.kill_node, running.kill_store):
            kill()
            running.progress(100)
        check(running, 3)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["priority", "fifo"])
def test_a_minute_of_kills_loses_nothing(kind: str, tmp_path: Path) -> None:
    end = time.monotonic() + 60
    kills = 0
    with crew(f"{kind}-chaos", tmp_path) as running:
        while time.monotonic() < end:
            chance = random.random()
            if chance < 0.4:
                running.kill_worker("consume")
            elif chance < 0.6:
                running.kill_worker("produce")
            elif chance < 0.9:
                running.kill_node()
            else:
                running.kill_store()
            kills += 1
            running.progress(50)
        check(running, kills)

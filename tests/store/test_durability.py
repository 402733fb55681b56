"""kill -9 of the server under load: what each durability keeps of what was acknowledged.

With `always` all of it. With `everysec` the server may hold back up to two seconds of writes from the kernel while an
earlier flush is still under way, so the newest may be missing, but never one that is older than one that is there.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import tempfile
from collections.abc import Iterator
from operator import itemgetter

import pytest

from mpreg.errors import StoreError
from mpreg.store import Embedded, Script, Store, StoreLimits, connect

pytestmark = pytest.mark.anyio
LIMITS = StoreLimits(backoff_min_s=0.001, backoff_max_s=0.02, down_wait_s=30.0)
WRITERS = 64
APPEND = Script.of("redis.call('SET', KEYS[1], ARGV[1]) return redis.call('RPUSH', KEYS[2], ARGV[1])", "append.lua")


@pytest.fixture
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mpreg-t-", dir="/tmp") as made:
        yield made


class Writers:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.acknowledged: dict[int, list[tuple[int, bytes]]] = {n: [] for n in range(WRITERS)}
        """(which connection it was on, value)"""
        self.unsure: dict[int, set[bytes]] = {n: set() for n in range(WRITERS)}
        self.refused: list[StoreError] = []
        self.stopping = False
        self.progress = asyncio.Condition()

    async def run(self, n: int) -> None:
        for turn in range(1_000_000):
            if self.stopping:
                return
            value = b"%d:%d" % (n, turn)
            try:
                await self.store.script(APPEND, [f"last:{n}", f"list:{n}"], [value])
            except StoreError as error:
                if error.state_changed is None:
                    self.unsure[n].add(value)
                else:
                    self.refused.append(error)
                continue
            self.acknowledged[n].append((self.store.primaries()[0].connections, value))
            async with self.progress:
                self.progress.notify_all()

    async def advance(self) -> None:
        goal = sum(map(len, self.acknowledged.values())) + 10 * WRITERS
        async with self.progress:
            await self.progress.wait_for(lambda: sum(map(len, self.acknowledged.values())) >= goal)


@pytest.mark.parametrize("durability", ["always", "everysec"])
@pytest.mark.parametrize("kills", [2, pytest.param(25, marks=pytest.mark.slow)])
async def test_kill_9_under_load(folder: str, durability: str, kills: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpreg.store.embedded.QUICK_DEATHS_MAX", 1000)
    monkeypatch.setattr("mpreg.store.embedded.BACKOFF_MAX_S", 0.01)
    async with Embedded(folder, durability) as server, await connect(server.url, limits=LIMITS) as store:
        writers = Writers(store)
        async with asyncio.TaskGroup() as group:
            for n in range(WRITERS):
                group.create_task(writers.run(n))
            for _ in range(kills):
                await writers.advance()
                pid = server.pid
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
            await writers.advance()
            writers.stopping = True
        assert not writers.refused
        for n in range(WRITERS):
            stored = await store.command("LRANGE", f"list:{n}", 0, -1)
            kept = [value for value in stored if value not in writers.unsure[n]]
            if durability == "always":
                assert kept == [value for _, value in writers.acknowledged[n]]
            else:
                check_oldest_are_kept(kept, writers.acknowledged[n])
            assert await store.command("GET", f"last:{n}") == stored[-1]


def check_oldest_are_kept(kept: list[bytes], acknowledged: list[tuple[int, bytes]]) -> None:
    """Of each life of the server the first so many, in their order."""
    expected: list[bytes] = []
    for _, life in itertools.groupby(acknowledged, key=itemgetter(0)):
        expected += itertools.takewhile(kept.__contains__, [value for _, value in life])
    assert kept == expected


async def test_memory_keeps_nothing_and_says_so_by_its_name(folder: str) -> None:
    async with Embedded(folder, "memory") as server, await connect(server.url, limits=LIMITS) as store:
        await store.command("SET", "key", 1)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        while not server.restarts:
            await asyncio.sleep(0)
        assert await store.command("GET", "key") is None

"""Three nodes over one store, whose messages to each other get lost: what each holds stays honest all the same."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.store.servers import StoreServers, valkey

from mpreg.cache.clock import StoreClock
from mpreg.cache.coherence import Update
from mpreg.cache.disk import DiskLevel
from mpreg.cache.entry import Entry
from mpreg.cache.key import store_key
from mpreg.cache.levels import Levels
from mpreg.cache.memory import MemorySettings, make_memory
from mpreg.cache.requests import LEVELS
from mpreg.cache.store_level import StoreLevel
from mpreg.errors import CacheError
from mpreg.store import connect

pytestmark = pytest.mark.anyio
KEYS = [store_key("coherence", f"k{n}") for n in range(4)]
pack = msgspec.msgpack.encode


class Group:
    """Levels of several nodes. `loss` is how many of a hundred messages get lost; others come late, in any order."""

    def __init__(self, chance: random.Random, loss: int) -> None:
        self.chance = chance
        self.loss = loss
        self.nodes: list[Levels] = []
        self.late: list[tuple[Levels, Update]] = []

    async def add(self, url: str, path: Path | None) -> Levels:
        clock = StoreClock(time.monotonic)
        level = StoreLevel(await connect(url), clock)
        await level.read_clock()
        disk = None
        if path is not None:
            disk = await DiskLevel.open(path, entries_max=100, bytes_max=10**6, on_evicted=lambda key, why: None)
        memory = make_memory(MemorySettings(entries_max=8), lambda key, why: None)  # two a segment

        def announce(update: Update) -> None:
            for other in self.nodes:
                if other is not node and self.chance.randrange(100) >= self.loss:
                    self.late.append((other, update))

        node = Levels(level, clock, memory=memory, disk=disk, announce=announce, revalidate_ms=3_600_000)
        self.nodes.append(node)
        return node

    def deliver(self, most: int) -> None:
        for _ in range(min(most, len(self.late))):
            node, update = self.late.pop(self.chance.randrange(len(self.late)))
            node.heard(update)

    async def close(self) -> None:
        for node in self.nodes:
            await node.close()
            await node.store.store.close()


@pytest.fixture
async def closing() -> AsyncIterator[list[Group]]:
    groups: list[Group] = []
    yield groups
    for group in groups:
        await group.close()


@pytest.mark.parametrize(("seed", "loss"), [(1, 0), (2, 30), (3, 30), (4, 100), (5, 60)])
async def test_no_read_goes_back_in_time_and_all_agree_in_the_end(
    store_servers: StoreServers, tmp_path: Path, closing: list[Group], seed: int, loss: int
) -> None:
    chance = random.Random(seed)
    group = Group(chance, loss)
    closing.append(group)
    for n in range(3):
        await group.add(store_servers.url, tmp_path / str(n) if n else None)
    newest: dict[tuple[int, bytes], int] = {}
    deleted: dict[tuple[int, bytes], int] = {}

    async def read(n: int, key: bytes) -> None:
        begun = max(newest.get((n, key), 0), deleted.get((n, key), 0))
        found = await group.nodes[n].get(key, LEVELS, strong=chance.random() < 0.2)
        if found.entry is not None:
            assert found.entry.version >= begun, "an older value after a newer one, or after a delete"
            newest[n, key] = max(newest.get((n, key), 0), found.entry.version)

    async def put(n: int, key: bytes) -> None:
        written = await group.nodes[n].put(key, pack(chance.random()), tags=("t",) if chance.random() < 0.3 else ())
        assert written is not None
        newest[n, key] = max(newest.get((n, key), 0), written.version)

    async def delete(n: int, key: bytes) -> None:
        written = await group.nodes[n].delete(key)
        assert written is not None
        deleted[n, key] = max(deleted.get((n, key), 0), written.version)

    for _ in range(60):
        steps = [
            chance.choice([read, read, read, put, delete])(chance.randrange(3), chance.choice(KEYS)) for _ in range(8)
        ]
        await asyncio.gather(*steps)
        group.deliver(chance.randrange(12))

    group.deliver(10**6)
    for node in group.nodes:
        node.missed()  # as after a lost connection: check by version before it is served
    for key in KEYS:
        record = await group.nodes[0].store.get(key)
        wanted = None if record is None else (record.entry.version, record.entry.value)
        for node in group.nodes:
            for _ in range(2):  # from the store or L2, then from L1
                entry: Entry | None = (await node.get(key, LEVELS)).entry
                assert (None if entry is None else (entry.version, entry.value)) == wanted


async def test_a_node_that_missed_the_message_finds_out_by_version(
    store_servers: StoreServers, closing: list[Group]
) -> None:
    group = Group(random.Random(1), loss=100)
    closing.append(group)
    one, two = [await group.add(store_servers.url, None) for _ in range(2)]
    key = KEYS[0]
    await one.put(key, pack(1))
    assert (await two.get(key, LEVELS)).entry is not None
    await one.put(key, pack(2))
    found = await two.get(key, LEVELS)
    assert (found.level, found.entry and found.entry.value) == ("L1", pack(1)), "nobody has told"
    two._revalidate_ms = -1  # its time to ask has come
    found = await two.get(key, LEVELS)
    assert (found.level, found.entry and found.entry.value) == ("L3", pack(2))
    found = await two.get(key, LEVELS)
    assert (found.level, found.entry and found.entry.value) == ("L1", pack(2)), "asked, and still current"
    await one.delete(key)
    assert (await two.get(key, LEVELS)).entry is None


async def test_a_read_under_way_while_the_value_changes_is_not_kept(
    store_servers: StoreServers, closing: list[Group]
) -> None:
    group = Group(random.Random(1), loss=0)
    closing.append(group)
    one, two = [await group.add(store_servers.url, None) for _ in range(2)]
    key = KEYS[0]
    await one.put(key, pack(1))
    reading = asyncio.create_task(two.get(key, LEVELS, strong=True))
    await asyncio.sleep(0)  # it is sent
    written = await one.put(key, pack(2))
    assert written is not None
    two.heard(Update("put", key, written.version))
    await reading
    assert (await two.get(key, LEVELS)).entry is not None
    found = await two.get(key, LEVELS)
    assert found.entry is not None
    assert found.entry.value == pack(2)


async def test_when_the_store_is_gone_what_is_held_is_served_and_says_so(tmp_path: Path, closing: list[Group]) -> None:
    with valkey() as server:
        group = Group(random.Random(1), loss=0)
        closing.append(group)
        node = await group.add(server.url, tmp_path / "l2")
        await node.put(KEYS[0], pack("held"))
        await node.put(KEYS[1], pack("on disk"))
        assert node.memory is not None
        assert node.disk is not None
        while await node.disk.get(KEYS[1], node.clock.now_ms()) is None:
            await asyncio.sleep(0)
        node.memory.remove(KEYS[1])
        server.kill()
        while node.store.is_up:
            await asyncio.sleep(0)
        node.missed()
        for key, level, value in ((KEYS[0], "L1", "held"), (KEYS[1], "L2", "on disk")):
            found = await node.get(key, LEVELS)
            assert (found.level, found.unverified) == (level, True)
            assert found.entry is not None
            assert found.entry.value == pack(value)
        for work in (
            node.get(KEYS[0], LEVELS, strong=True),
            node.get(KEYS[2], LEVELS),
            node.put(KEYS[0], pack(1)),
            node.delete(KEYS[0]),
        ):
            with pytest.raises(CacheError) as refused:
                await _at_once(work)
            assert refused.value.code == "CACHE_STORE_UNAVAILABLE"
            assert refused.value.retryable
        server.start()
        while not node.store.is_up:
            await asyncio.sleep(0.01)  # nothing tells when the link is there again
        await node.put(KEYS[0], pack("again"))
        found = await node.get(KEYS[0], LEVELS)
        assert not found.unverified


async def _at_once(work: Any) -> Any:
    """Without waiting for the store to come back."""
    async with asyncio.timeout(2):
        return await work


async def test_a_restarted_node_asks_before_it_serves_from_disk(
    store_servers: StoreServers, tmp_path: Path, closing: list[Group]
) -> None:
    group = Group(random.Random(1), loss=0)
    one = await group.add(store_servers.url, tmp_path / "l2")
    await one.put(KEYS[0], pack("kept"))
    await one.put(KEYS[1], pack("old"))
    assert one.disk is not None
    for key in KEYS[:2]:
        while await one.disk.get(key, one.clock.now_ms()) is None:
            await asyncio.sleep(0)
    await group.close()
    later = Group(random.Random(1), loss=0)
    closing.append(later)
    other = await later.add(store_servers.url, None)
    await other.put(KEYS[1], pack("new"))
    again = await later.add(store_servers.url, tmp_path / "l2")
    found = await again.get(KEYS[0], LEVELS)
    assert (found.level, found.unverified, found.entry and found.entry.value) == ("L2", False, pack("kept"))
    found = await again.get(KEYS[1], LEVELS)
    assert (found.level, found.entry and found.entry.value) == ("L3", pack("new"))


async def test_a_put_that_skips_a_level_leaves_nothing_older_in_it(
    store_servers: StoreServers, tmp_path: Path, closing: list[Group]
) -> None:
    group = Group(random.Random(1), loss=0)
    closing.append(group)
    node = await group.add(store_servers.url, tmp_path / "l2")
    await node.put(KEYS[0], pack(1))
    await node.put(KEYS[0], pack(2), levels=("L3",))
    found = await node.get(KEYS[0], LEVELS)
    assert (found.level, found.entry and found.entry.value) == ("L3", pack(2))


async def test_what_is_on_disk_and_known_to_be_old_is_not_served_even_without_the_store(
    store_servers: StoreServers, tmp_path: Path, closing: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(random.Random(1), loss=0)
    closing.append(group)
    node = await group.add(store_servers.url, tmp_path / "l2")
    assert node.disk is not None
    key, read_disk = KEYS[0], node.disk.get
    old = await node.put(key, pack(1))
    assert old is not None
    await asyncio.wait(node._tasks)  # the disk has it

    async def heard_meanwhile(key: bytes, now_ms: int) -> Entry | None:
        found = await read_disk(key, now_ms)
        node.heard(Update("put", key, old.version + 1))
        return found

    async def gone(key: bytes) -> int:
        raise CacheError("CACHE_STORE_UNAVAILABLE", "gone")

    monkeypatch.setattr(node.store, "version", gone)
    found = await node.get(key, ("L2",))
    assert (found.entry is not None, found.unverified) == (True, True), "nothing newer is known"
    monkeypatch.setattr(node.disk, "get", heard_meanwhile)
    assert (await node.get(key, ("L2",))).entry is None


async def test_a_write_whose_answer_does_not_come_leaves_nothing_older(
    store_servers: StoreServers, closing: list[Group]
) -> None:
    group = Group(random.Random(1), loss=0)
    closing.append(group)
    one, two = [await group.add(store_servers.url, None) for _ in range(2)]
    await one.put(KEYS[0], pack(1))
    await two.get(KEYS[0], LEVELS)
    writing = asyncio.create_task(one.put(KEYS[0], pack(2)))
    while not one._under:
        await asyncio.sleep(0)
    writing.cancel()  # as when a request's time is up: the command is on its way
    await asyncio.gather(writing, return_exceptions=True)
    group.deliver(10)
    await one.store.command("PING")  # the store has done what came before
    for node in (one, two):
        found = await node.get(KEYS[0], LEVELS)
        assert found.entry is not None
        record = await node.store.get(KEYS[0])
        assert record is not None
        assert found.entry.version == record.entry.version


async def test_what_no_level_of_the_cluster_has_other_clusters_are_asked_for(
    store_servers: StoreServers, closing: list[Group]
) -> None:
    group = Group(random.Random(1), loss=0)
    closing.append(group)
    node = await group.add(store_servers.url, None)
    far = Entry(value=pack("far"), version=1, created_ms=1)

    async def beyond(key: bytes) -> Entry | None:
        return far if key == KEYS[3] else None

    node.beyond = beyond
    assert (await node.get(KEYS[3], LEVELS)).entry is None, "not asked to"
    found = await node.get(KEYS[3], (*LEVELS, "L4"))
    assert (found.level, found.entry) == ("L4", far)
    assert (await node.get(KEYS[2], (*LEVELS, "L4"))).entry is None

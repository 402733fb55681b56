"""Backup, restore and purge while a cluster moves slots, and when one of its primaries fails over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.keyspace.tools.sample import CATALOG
from tests.store.servers import Cluster, cluster

from mpreg.errors import KeyspaceError
from mpreg.keyspace.tools.backup import backup
from mpreg.keyspace.tools.backup_file import opened, written
from mpreg.keyspace.tools.purge import Order, Purged, plan, purge
from mpreg.keyspace.tools.restore import Restored, restore, verify
from mpreg.keyspace.tools.selection import select
from mpreg.store import Store, connect
from mpreg.store.slots import slot_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KEYS = 3_000
EXPIRY = 4_000_000_000_000
MIGRATED_MS = 1_000


@pytest.fixture(scope="module")
def _nodes() -> Iterator[Cluster]:
    with cluster(primaries=3, replicas=1) as nodes:
        yield nodes


@pytest.fixture
async def nodes(_nodes: Cluster) -> Cluster:
    async with await connect(_nodes.url) as store:
        await empty(store)
    return _nodes


@pytest.fixture
async def store(nodes: Cluster) -> AsyncIterator[Store]:
    async with await connect(nodes.url) as opened_store:
        await asyncio.gather(
            *(opened_store.command("SET", f"app:temp:{n}", f"value {n}", "PXAT", EXPIRY + n) for n in range(KEYS))
        )
        yield opened_store


async def empty(store: Store) -> None:
    async for page in store.scan():
        await asyncio.gather(*(store.command("UNLINK", key) for key in page))


async def everything(store: Store) -> dict[bytes, tuple[bytes, int]]:
    keys = sorted({key async for page in store.scan() for key in page})
    values = await asyncio.gather(*(store.command("GET", key) for key in keys))
    expiries = await asyncio.gather(*(store.command("PEXPIRETIME", key) for key in keys))
    return dict(zip(keys, zip(values, expiries, strict=True), strict=True))


def whole() -> dict[bytes, tuple[bytes, int]]:
    return {b"app:temp:%d" % n: (b"value %d" % n, EXPIRY + n) for n in range(KEYS)}


async def count(store: Store) -> int:
    return sum([await link.command("DBSIZE") for link in store.primaries()])


async def load(store: Store, path: Path, *, resume: bool = False) -> Restored:
    with opened(str(path)) as file:
        verified = await verify(file)
        return await restore(store, file, verified, resume=resume, state_of=str(path), keys_per_s=1_500)


async def while_slots_move(nodes: Cluster, until: asyncio.Event, moved: set[int]) -> None:
    """Slots go round from one primary to the next until told to stop, at least a few."""
    for slot in range(0, 16_384, 97):
        if until.is_set() and len(moved) >= 3:
            break
        owner = nodes.owner(slot)
        target = next(node for node in nodes.primaries if node is not owner)
        moved.add(slot)
        await asyncio.to_thread(nodes.move_slot, slot, target)


def is_whole(found: dict[bytes, tuple[bytes, int]], moved: set[int]) -> bool:
    """MIGRATE sends the rest of a TTL, not when it ends: a key that it moves may live a little longer."""
    return found.keys() == whole().keys() and all(
        found[key] == (value, expiry)
        or (slot_of(key) in moved and found[key][0] == value and 0 < found[key][1] - expiry < MIGRATED_MS)
        for key, (value, expiry) in whole().items()
    )


async def test_nothing_is_missed_or_done_twice_while_slots_move(nodes: Cluster, store: Store, tmp_path: Path) -> None:
    done = asyncio.Event()
    moved: set[int] = set()
    moving = asyncio.create_task(while_slots_move(nodes, done, moved))
    try:
        with written(str(tmp_path / "b")) as sink:
            saved = await backup(store, sink, keys_per_s=1_500)
        assert (saved.keys, saved.gone) == (KEYS, 0)
        order = Order(selection=select(CATALOG, b"app:temp:*", ()), keys_per_s=1_500)
        planned, keys = await plan(store, order)
        assert planned.chosen == KEYS
        purged = await purge(store, order, keys, undo=str(tmp_path / "undo"))
        left = await everything(store)
        assert purged == Purged(deleted=KEYS - len(left), gone=0, changed=len(left))
        assert {slot_of(key) for key in left} <= moved, "only what was moved meanwhile may look as if it were renewed"
        await empty(store)
        assert (await load(store, tmp_path / "b")).restored == KEYS
    finally:
        done.set()
        await moving
    assert len(moved) >= 3
    assert is_whole(await everything(store), moved)


async def test_a_restore_that_meets_a_failover_is_whole_in_the_end(
    nodes: Cluster, store: Store, tmp_path: Path
) -> None:
    with written(str(tmp_path / "b")) as sink:
        await backup(store, sink)
    await empty(store)
    restoring = asyncio.create_task(load(store, tmp_path / "b"))
    while not await count(store):  # it has begun
        assert not restoring.done()
    await asyncio.to_thread(nodes.fail_over, 0)
    try:
        await restoring
    except KeyspaceError as error:
        if error.code != "KEYSPACE_RESTORE_FAILED":
            raise
        await load(store, tmp_path / "b", resume=True)
    assert await everything(store) == whole()

"""A real cluster that changes under load: slots move, primaries change, nodes die. All of it slow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import pytest
from tests.store.servers import Cluster, cluster

from mpreg.errors import StoreError
from mpreg.store import Gap, KeyEvent, Script, Store, StoreLimits, connect
from mpreg.store.slots import slot_of, tag_for_slot

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
LIMITS = StoreLimits(down_wait_s=20.0, topology_s=0.5)
INCR = Script.of("return redis.call('INCR', KEYS[1])", "incr.lua")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(primaries=3, replicas=1) as made:
        yield made


class Load:
    """Callers who count up one key each, by command and by script, until told to stop; each answer must be the next."""

    def __init__(self, store: Store, keys: list[str], may_lose: Iterable[str] = ()) -> None:
        self.may_lose = frozenset(may_lose)
        self.done: dict[str, int] = dict.fromkeys(keys, 0)
        self.answers: dict[str, int] = dict.fromkeys(keys, 0)
        self.lost = 0
        self.unsure: dict[str, int] = dict.fromkeys(keys, 0)
        self.store = store
        self.stopping = False
        self.progress = asyncio.Condition()

    async def run(self, key: str) -> None:
        turn = 0
        while not self.stopping:
            turn += 1
            try:
                sent = self.store.send("INCR", key) if turn % 2 else self.store.send_script(INCR, [key])
                value = await sent
            except StoreError as error:
                if error.state_changed is not None:
                    raise  # only what was under way may fail, and nobody knows whether it has run
                self.unsure[key] += 1
                self.lost += 1
                continue
            if key not in self.may_lose:
                assert self.done[key] < value <= self.done[key] + 1 + self.unsure[key]
            self.unsure[key] = 0
            self.answers[key] += 1
            self.done[key] = value
            async with self.progress:
                self.progress.notify_all()

    async def advance(self, keys: list[str]) -> None:
        """Until each of the keys has been counted up twice more."""
        goal = {key: self.answers[key] + 2 for key in keys}
        async with self.progress:
            await self.progress.wait_for(lambda: all(self.answers[key] >= goal[key] for key in keys))


async def test_slots_move_to_another_primary_under_load_and_back(nodes: Cluster) -> None:
    slots = [1, 2, 3, 4, 5]
    target = nodes.owner(16000)
    home = nodes.owner(1)
    async with await connect(nodes.url, limits=LIMITS) as store:
        keys = [f"{{{tag_for_slot(slot).decode()}}}:{n}" for slot in slots for n in range(10)]
        load = Load(store, keys)
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(load.run(key))
            for server in (target, home):
                for slot in slots:
                    await asyncio.to_thread(nodes.move_slot, slot, server)
                    await load.advance(keys)
            load.stopping = True
        assert load.lost == 0, "a slot that moves breaks no connection"
        values = await asyncio.gather(*[store.command("GET", key) for key in keys])
        assert dict(zip(keys, map(int, values), strict=True)) == load.done


async def test_several_keys_of_a_slot_that_is_half_moved(nodes: Cluster) -> None:
    slot = 7
    tag = "{" + tag_for_slot(slot).decode() + "}"
    source, target = nodes.owner(slot), nodes.owner(16000)
    source_id, target_id = source.call("CLUSTER", "MYID"), target.call("CLUSTER", "MYID")
    async with await connect(nodes.url, limits=LIMITS) as store:
        await store.command("MSET", f"{tag}a", 1, f"{tag}b", 2)
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        source.call("MIGRATE", "127.0.0.1", target.port, f"{tag}a", 0, 5000)
        assert await store.command("GET", f"{tag}a") == b"1"  # ASK
        assert await store.script(INCR, [f"{tag}a"]) == 2  # ASK, and the script is unknown there
        assert await store.command("GET", f"{tag}b") == b"2"
        both = store.send("MGET", f"{tag}a", f"{tag}b")  # TRYAGAIN until the slot has moved
        pages = [page async for page in store.scan(f"{tag}*")]
        assert {key for page in pages for key in page} == {f"{tag}a".encode(), f"{tag}b".encode()}
        assert not both.done()
        await asyncio.to_thread(nodes.move_slot, slot, target)
        assert await both == [b"2", b"2"]
        await asyncio.to_thread(nodes.move_slot, slot, source)


async def test_an_orderly_failover_under_load(nodes: Cluster) -> None:
    async with await connect(nodes.url, limits=LIMITS) as store:
        keys = [f"failover:{n}" for n in range(60)]
        load = Load(store, keys)
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(load.run(key))
            await load.advance(keys)
            primary = await asyncio.to_thread(nodes.fail_over, 0)
            await load.advance(keys)
            load.stopping = True
        assert load.lost == 0
        await store.command("SET", tagged := "{" + tag_for_slot(0).decode() + "}", 1)
        assert primary.call("GET", tagged) == b"1"


async def test_events_of_a_primary_that_takes_over_are_heard_without_any_command(nodes: Cluster) -> None:
    key = "{" + tag_for_slot(6000).decode() + "}"
    async with await connect(nodes.url, limits=LIMITS) as store, store.keyspace_events(keys=[key]) as events:
        await store.command("SET", key, 1)
        assert await anext(events) == KeyEvent(key.encode(), "set")
        primary = await asyncio.to_thread(nodes.fail_over, 6000)
        assert await anext(events) == Gap("reconnect")
        primary.call("SET", key, 2)
        assert await anext(events) == KeyEvent(key.encode(), "set")


async def test_keys_in_several_slots_are_refused_with_the_slots_named(nodes: Cluster) -> None:
    async with await connect(nodes.url, limits=LIMITS) as store:
        with pytest.raises(StoreError) as refused:
            store.send("MSET", "a", 1, "b", 2)
        assert refused.value.code == "STORE_CROSS_SLOT"
        assert refused.value.details["slots"] == sorted([slot_of(b"a"), slot_of(b"b")])
        assert await store.command("EXISTS", "a") == 0


@pytest.mark.parametrize("name", ["SCAN", "dbsize", b"FLUSHALL", "CONFIG"])
async def test_what_concerns_one_server_is_refused(nodes: Cluster, name: str | bytes) -> None:
    async with await connect(nodes.url, limits=LIMITS) as store:
        with pytest.raises(StoreError, match="primaries"):
            store.send(name, 0)


async def test_commands_that_are_in_no_table_find_their_server(nodes: Cluster) -> None:
    async with await connect(nodes.url, limits=LIMITS) as store:
        for n in range(10):
            assert await store.command("GEORADIUS_RO", f"geo{n}", 0, 0, 1, "km") == []
            assert await store.command("CLUSTERSCAN", "0", "MATCH", f"x{n}") is not None
            assert (await store.command("SUBSTR", f"nothing{n}", 0, 1)) == b""
        with pytest.raises(StoreError) as unknown:
            await store.command("FROBNICATE", "a")
        assert unknown.value.code == "STORE_REPLY"


async def test_a_primary_that_is_killed_holds_up_its_own_slots_only_and_is_replaced(nodes: Cluster) -> None:
    """The last test on this module's cluster, which is left with a node that is dead."""
    async with await connect(nodes.url, limits=LIMITS) as store:
        keys = [f"kill:{n}" for n in range(60)]
        victim = nodes.owner(12000)
        orphans = [key for key in keys if nodes.owner(slot_of(key.encode())) is victim]
        others = [key for key in keys if key not in orphans]
        assert orphans
        assert others
        # A cluster replicates after it has answered, so what a dead primary acknowledged last may be gone.
        load = Load(store, keys, may_lose=orphans)
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(load.run(key))
            await load.advance(keys)
            victim.kill()
            await load.advance(others)
            await load.advance(orphans)
            load.stopping = True
        assert nodes.owner(12000) is not victim

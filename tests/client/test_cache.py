"""The cache as a program uses it, through nodes over a real store."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.store.servers import StoreServers, valkey

from mpreg import Client, Node, Settings, connect
from mpreg.client.cache import Cache, Notify
from mpreg.errors import CacheError
from mpreg.wire.cache import CacheOptions
from mpreg.wire.encoding import Encoding

pytestmark = pytest.mark.anyio
NAMES = itertools.count()


def node_on(url: str, name: str = "n", **settings: Any) -> Node:
    return Node(name, Settings(store=url, **{"ws": "off", "tcp": "off", **settings}, grace_s=5))


@pytest.fixture
async def client(store_servers: StoreServers) -> AsyncIterator[Client]:
    async with node_on(store_servers.url) as node, connect(node) as opened:
        yield opened


@pytest.fixture
async def clients(store_servers: StoreServers) -> AsyncIterator[list[Client]]:
    """Of three nodes."""
    url = store_servers.url
    async with (
        node_on(url, "a") as a,
        node_on(url, "b") as b,
        node_on(url, "c") as c,
        connect(a) as one,
        connect(b) as two,
        connect(c) as three,
    ):
        yield [one, two, three]


@pytest.fixture
def cache(client: Client) -> Cache:
    return client.cache(f"ns{next(NAMES)}")


async def until(condition: Any) -> None:
    """Nothing tells a program when another node has heard."""
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.005)


async def test_what_is_put_is_got_until_it_is_deleted(cache: Cache) -> None:
    assert await cache.get("a") is None
    version = await cache.put("a", {"x": [1, 2.5, None, "ä"]}, ttl=60, tags=["t"], depends_on=["input:1"], cost_ms=12.5)
    assert await cache.get("a") == {"x": [1, 2.5, None, "ä"]}
    found = await cache.get_entry("a")
    assert found is not None
    assert (found.version, found.tags, found.dependencies, found.cost_ms) == (version, ("t",), ("input:1",), 12.5)
    assert found.ttl == 60
    assert found.ttl_remaining is not None
    assert 50 < found.ttl_remaining <= 60
    assert await cache.put("a", None) > version
    assert await cache.get("a", "default") is None
    assert (await cache.get_entry("a")) is not None
    assert await cache.delete("a") == 1
    assert await cache.get("a", "default") == "default"
    assert await cache.delete("a") == 0


class Point(msgspec.Struct):
    x: int
    y: int


async def test_values_come_back_as_the_type_that_is_asked_for(cache: Cache) -> None:
    await cache.put("p", Point(1, 2))
    assert await cache.get("p", value_type=Point) == Point(1, 2)
    assert await cache.get_many(["p"], value_type=Point) == {"p": Point(1, 2)}
    with pytest.raises(CacheError) as refused:
        await cache.put("p", object())
    assert refused.value.code == "CACHE_UNENCODABLE"


async def test_many_at_once(cache: Cache) -> None:
    await asyncio.gather(*(cache.put(f"k{n}", n) for n in range(50)))
    found = await cache.get_many(f"k{n}" for n in range(1_200))
    assert found == {f"k{n}": n for n in range(50)}


async def test_exact_operations(cache: Cache) -> None:
    assert await asyncio.gather(*(cache.incr("n") for _ in range(100))) is not None
    assert await cache.incr("n", 0) == 100
    assert await cache.incr("new", 2, initial=40) == 42
    assert await cache.add("once", 1)
    assert not await cache.add("once", 2)
    assert await cache.compare_and_swap("once", 1, {"a": 1, "b": 2})
    assert await cache.compare_and_swap("once", {"b": 2, "a": 1}, 3)
    assert not await cache.compare_and_swap("once", 4, 5)
    assert await cache.append("text", "a") == "a"
    assert await cache.append("text", "b") == "ab"
    assert await cache.append("text", "c", front=True) == "cab"
    assert await cache.extend_ttl("text", 100)
    assert not await cache.extend_ttl("absent", 100)
    with pytest.raises(CacheError) as refused:
        await cache.incr("text")
    assert refused.value.code == "CACHE_WRONG_TYPE"


async def test_structures(cache: Cache) -> None:
    people = cache.set("people")
    assert await people.add("ann", "bob", "ann") == 2
    assert await people.contains("ann")
    assert await people.contains_all("ann", "cid") == [True, False]
    await cache.set("others").add("bob", "cid")
    assert await people.intersection(f"{cache.namespace}:others") == ["bob"]
    assert await people.remove("ann") == 1
    assert await people.members() == ["bob"]

    jobs = cache.list("jobs", ttl=100)
    assert await jobs.append(1, 2, 3) == 3
    assert await jobs.insert(1, "x") == 4
    assert await jobs.range(1, 3) == ["x", 2]
    assert await jobs.pop_front() == 1
    assert await cache.list("none").pop_back() is None

    user = cache.map("user")
    await user.set({"name": "ann", "settings": {"theme": "dark"}})
    assert await user.get("settings.theme") == "dark"
    assert await user.incr("visits", 3) == 3
    assert await user.get("settings") == {"theme": "dark"}
    assert await user.get("absent", 7) == 7
    assert sorted(await user.keys()) == ["name", "settings", "visits"]

    scores = cache.sorted_set("scores")
    assert await scores.add({"ann": 10, "bob": 20.5}) == 2
    assert await scores.top(1) == [("bob", 20.5)]
    assert await scores.range(5, 15) == [("ann", 10)]
    assert await scores.score("ann") == 10
    assert await scores.score("cid") is None


async def test_invalidate_by_pattern_tag_and_dependency(cache: Cache) -> None:
    for n in range(3):
        await cache.put(f"user.{n}", n, tags=[f"{cache.namespace}-tag"], depends_on=[f"{cache.namespace}-in"])
    await cache.put("report", 1, depends_on=[f"{cache.namespace}:user.1"])
    assert await cache.invalidate("user.1") == 2
    assert await cache.invalidate(tag=f"{cache.namespace}-tag") == 2
    assert await cache.invalidate(depends_on=f"{cache.namespace}-in") == 0


async def test_keys_clear_statistics_backup_and_restore(cache: Cache) -> None:
    for n in range(20):
        await cache.put(f"k{n}", n, ttl=1000 if n % 2 else None)
    await cache.set("s").add(1)
    assert len({each["identifier"] async for each in cache.keys("k*")}) == 20
    assert (await cache.statistics(detailed=True))["breakdown"]["kinds"] == {"value": 20, "set": 1}
    pages = [page async for page in cache.backup()]
    with_end = {"ttl_remaining": {"$lt": 2000}}
    assert await cache.clear(conditions=with_end, dry_run=True) == 10
    assert await cache.clear(conditions=with_end, max_entries=4) == 4
    assert await cache.clear() == 17
    assert [sum(counts) for counts in zip(*[await cache.restore(page) for page in pages], strict=True)] == [21, 0]
    assert await cache.get("k19") == 19
    assert await cache.set("s").members() == [1]


async def test_a_change_publishes_if_its_condition_holds(client: Client, cache: Cache) -> None:
    notify = Notify(topic=f"stock.{cache.namespace}", field="left", threshold={"$lt": 10}, payload={"kind": "low"})
    async with client.subscribe(f"stock.{cache.namespace}") as messages:
        await cache.put("tea", {"left": 50}, notify=notify)
        await cache.put("tea", {"left": 5}, notify=notify)
        message = await anext(messages)
    assert message.payload.items() >= {"kind": "low", "old_value": {"left": 50}, "new_value": {"left": 5}}.items()


# --- near -------------------------------------------------------------------------------------------------------------


async def test_a_near_value_takes_no_round_trip_and_goes_when_it_changes(clients: list[Client]) -> None:
    one, two, _ = clients
    name = f"ns{next(NAMES)}"
    near, far = one.cache(name, near=100), two.cache(name)
    await far.put("a", 1)
    assert await near.get("a") == 1
    calls = one._next_u
    before = calls()
    assert await near.get("a") == 1
    assert calls() == before + 1, "no message was made"
    await far.put("a", 2)

    async def heard() -> bool:
        return bool(await near.get("a") == 2)

    await until(heard)
    await near.put("a", 3)
    assert await near.get("a") == 3, "what it has written itself it reads at once"
    await far.delete("a")

    async def gone() -> bool:
        return await near.get("a") is None

    await until(gone)


async def test_near_values_end_with_their_ttl_and_are_bounded(client: Client) -> None:
    near = client.cache(f"ns{next(NAMES)}", near=2)
    for n in range(5):
        await near.put(str(n), n)
        assert await near.get(str(n)) == n
    held = client._caches.is_near(near.namespace)
    assert held is not None
    assert len(held) == 2
    await near.put("short", 1, ttl=0.05)
    assert await near.get("short") == 1

    async def ended() -> bool:
        return await near.get("short") is None

    await until(ended)


# --- coherence --------------------------------------------------------------------------------------------------------


async def test_nodes_hear_of_each_others_changes(clients: list[Client]) -> None:
    name = f"ns{next(NAMES)}"
    one, two, three = (each.cache(name) for each in clients)
    await one.put("a", 1)
    assert [await each.get("a") for each in (one, two, three)] == [1, 1, 1]
    found = await two.get_entry("a")
    assert found is not None
    assert found.level == "L1"
    await three.put("a", 2)

    async def all_are(value: Any) -> bool:
        return [await each.get("a") for each in (one, two, three)] == [value] * 3

    await until(lambda: all_are(2))
    await one.invalidate("a")
    await until(lambda: all_are(None))
    await two.incr("n", 5)
    assert await three.get("n") == 5
    await two.incr("n", 5)

    async def counted() -> bool:
        return bool(await three.get("n") == 10)

    await until(counted)


# --- computed values --------------------------------------------------------------------------------------------------


async def test_a_thousand_misses_on_three_nodes_compute_once(clients: list[Client]) -> None:
    name, computed = f"ns{next(NAMES)}", 0
    begun = asyncio.Event()

    async def compute() -> int:
        nonlocal computed
        computed += 1
        await begun.wait()
        return 42

    async def ask(client: Client) -> int:
        # A handle of its own client each, so that they don't share the computation within the process.
        return await client.cache(name).get_or_compute("a", compute, ttl=60)

    tasks = [asyncio.create_task(ask(clients[n % 3])) for n in range(1_000)]
    await until(lambda: _is(computed == 1))
    begun.set()
    assert await asyncio.gather(*tasks) == [42] * 1_000
    assert computed == 1


async def _is(condition: bool) -> bool:
    return condition


async def test_a_thousand_requests_for_one_lease_give_one(clients: list[Client]) -> None:
    """As above, without what a client does to spare the node."""
    name = f"ns{next(NAMES)}"
    caches = [each.cache(name) for each in clients]
    leases: list[Any] = []

    async def ask(cache: Cache) -> Any:
        response = await cache.ask_get("a", CacheOptions(lease_ms=60_000, timeout_ms=60_000), 60)
        if response.lease is not msgspec.UNSET:
            leases.append(response.lease)
            await cache.put_with("a", 7, None, None, (), (), 0, CacheOptions(lease=response.lease), None)
            return 7
        assert response.entry is not msgspec.UNSET
        return cache.value(response.entry.value, Any)

    assert await asyncio.gather(*(ask(caches[n % 3]) for n in range(1_000))) == [7] * 1_000
    assert len(leases) == 1


async def test_when_the_computing_client_dies_exactly_one_takes_over(store_servers: StoreServers) -> None:
    url, computed = store_servers.url, list[str]()
    async with node_on(url, "a") as a, node_on(url, "b") as b, connect(b) as survivor:
        name, started = f"ns{next(NAMES)}", asyncio.Event()

        async def never() -> int:
            computed.append("first")
            started.set()
            return await asyncio.Event().wait()  # type: ignore[return-value]

        async def compute() -> int:
            computed.append("second")
            return 2

        doomed = await connect(a).connected()
        first = asyncio.create_task(doomed.cache(name).get_or_compute("a", never))
        await started.wait()
        waiting = [asyncio.create_task(survivor.cache(name).get_or_compute("a", compute)) for _ in range(10)]
        for connection in list(doomed._exchange._connections):
            connection.link.close()  # without a word about the lease
        assert await asyncio.gather(*waiting) == [2] * 10
        assert computed == ["first", "second"]
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await doomed.close()


async def test_a_computation_that_fails_is_done_by_the_next_one(cache: Cache) -> None:
    async def fails() -> int:
        raise ValueError("no")

    async def works() -> int:
        return 1

    with pytest.raises(ValueError, match="no"):
        await cache.get_or_compute("a", fails)
    assert await cache.get_or_compute("a", works) == 1
    assert await cache.get("a") == 1


async def test_none_is_kept_only_by_choice(cache: Cache) -> None:
    calls = 0

    async def nothing() -> None:
        nonlocal calls
        calls += 1

    for _ in range(2):
        assert await cache.get_or_compute("a", nothing) is None
    assert calls == 2
    for _ in range(2):
        assert await cache.get_or_compute("a", nothing, negative_ttl=60) is None
    assert calls == 3


async def test_a_stale_value_is_served_while_one_computes_it_anew(cache: Cache) -> None:
    values, refreshed = iter([1, 2]), asyncio.Event()

    async def compute() -> int:
        value = next(values)
        if value == 2:
            refreshed.set()
        return value

    assert await cache.get_or_compute("a", compute, ttl=0.02, stale=1000) == 1

    async def stale() -> bool:
        await cache.get_or_compute("a", compute, ttl=1000, stale=1000)
        return refreshed.is_set()

    await until(stale)

    async def new() -> bool:
        return bool(await cache.get_or_compute("a", compute, ttl=1000, stale=1000) == 2)

    await until(new)


async def test_memoize_keeps_results_by_arguments(client: Client, cache: Cache) -> None:
    calls = list[Any]()

    @cache.memoize(ttl=60, name="area")
    async def area(x: int, y: int = 2) -> Point:
        calls.append((x, y))
        return Point(x, y)

    assert await area(1) == await area(x=1, y=2) == Point(1, 2)
    assert await area(1, 3) == Point(1, 3)
    assert calls == [(1, 2), (1, 3)]
    assert await area.forget(1)  # type: ignore[attr-defined]
    await area(1)
    assert calls == [(1, 2), (1, 3), (1, 2)]
    assert area.identifier(1) == "area:074d2ce862ea4331ccac0c43d8ef19af"  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="make no key"):
        await area(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not async"):
        cache.memoize(lambda: 1)  # type: ignore[arg-type, return-value]


# --- without the store ------------------------------------------------------------------------------------------------


async def test_json_clients_see_the_same(store_servers: StoreServers) -> None:
    async with node_on(store_servers.url, tcp=0) as node:
        url = node.listeners["tcp"]
        async with connect(url, encoding=Encoding.JSON) as json, connect(url) as msgpack:
            name = f"ns{next(NAMES)}"
            await json.cache(name).put("a", {"x": 1, "y": [None, 2.5, "ä"]})
            assert await msgpack.cache(name).get("a") == {"x": 1, "y": [None, 2.5, "ä"]}
            pages = [page async for page in json.cache(name).backup()]
            assert await msgpack.cache(name).restore(pages[0], merge="replace") == (1, 0)


async def test_a_node_without_a_store_says_so() -> None:
    async with Node("bare", Settings(store="off", ws="off", tcp="off")) as node, connect(node) as client:
        with pytest.raises(CacheError) as refused:
            await client.cache("a").get("b")
        assert refused.value.code == "CACHE_STORE_UNAVAILABLE"


async def test_when_the_store_is_gone_eventual_reads_go_on_and_say_so() -> None:
    with valkey() as server:
        async with node_on(server.url) as node, connect(node) as client:
            cache = client.cache("gone")
            await cache.put("a", "held")
            server.kill()

            async def unverified() -> bool:
                found = await cache.get_entry("a")
                assert found is not None
                assert found.value == "held"
                return found.unverified

            await until(unverified)
            for work in (
                cache.get("a", consistency="strong"),
                cache.get("never held"),
                cache.put("a", 1),
                cache.incr("n"),
                cache.set("s").add(1),
                cache.invalidate("a"),
                cache.clear(),
            ):
                with pytest.raises(CacheError) as refused:
                    async with asyncio.timeout(3):
                        await work
                assert refused.value.code == "CACHE_STORE_UNAVAILABLE"

            async def compute() -> int:
                return 5

            assert await cache.get_or_compute("b", compute) == 5, "computed, and not kept"
            server.start()

            async def again() -> bool:
                try:
                    await cache.put("a", "again")
                except CacheError:
                    return False
                return True

            await until(again)
            assert await cache.get("a") == "again"


async def test_replicas_are_counted(client: Client, cache: Cache, store_servers: StoreServers) -> None:
    response = await cache.put_with(
        "a", 1, None, None, (), (), 0, CacheOptions(replication_factor=2, timeout_ms=4000), None
    )
    assert response.replicas == (2 if store_servers.kind == "cluster" else 1)
    assert await cache.put("b", 1, replicas=2)


async def test_nothing_is_left_behind(store_servers: StoreServers) -> None:
    async with node_on(store_servers.url) as node, connect(node) as client:
        cache = client.cache(f"ns{next(NAMES)}")

        async def compute() -> int:
            return 1

        await asyncio.gather(*(cache.get_or_compute(str(n % 7), compute) for n in range(100)))
        await asyncio.gather(*(cache.get(str(n)) for n in range(100)))
        await cache.clear()
        inner = node._started().services.cache.cache
        assert inner is not None
        await until(lambda: _is(not inner.levels._tasks))
        assert inner.levels._under == {}
        assert inner.levels._reading == {}
        assert inner.leases._waiting == {}
        assert client._caches.computing == {}
        operations = node._started().services.cache._operations
        assert operations is not None
        assert not any(operations._leases.values())


async def test_a_value_that_another_computed_is_then_held_by_the_node(clients: list[Client]) -> None:
    name = f"ns{next(NAMES)}"

    async def compute() -> int:
        return 1

    for client in clients:
        assert await client.cache(name).get_or_compute("a", compute, ttl=60) == 1
        found = await client.cache(name).get_entry("a")
        assert found is not None
        assert found.level == "L1"

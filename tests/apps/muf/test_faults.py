"""What a conversation survives: lost connections, servers that restart, are full, or give neither events nor rights."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager

import pytest
from tests.apps.muf.conftest import Units
from tests.apps.muf.peer import all_keys, until_set
from tests.store.servers import Server, StoreServers, cluster, redis7, valkey

from mpreg.apps.muf import MufTimeout, Request, Unit
from mpreg.errors import StoreError
from mpreg.store import Store, connect

pytestmark = pytest.mark.anyio

Start = Callable[..., AbstractContextManager[Server]]


@pytest.fixture(params=["valkey", pytest.param("redis7", marks=pytest.mark.slow)])
def start(request: pytest.FixtureRequest) -> Start:
    """A server that the test may kill and set up as it likes."""
    return {"valkey": valkey, "redis7": redis7}[request.param]


@asynccontextmanager
async def pair(url: str, **offer: object) -> AsyncIterator[tuple[Unit, Unit, list[str]]]:
    """A frontend, and a backend that echoes and notes what it ran."""
    ran: list[str] = []

    async def echo(request: Request) -> bytes:
        ran.append(request.id)
        return request.raw

    async with await Unit.connect("FE", url) as frontend, await Unit.connect("BE", url) as backend:
        backend.on_request(**offer)(echo)
        await backend.ready()
        yield frontend, backend, ran


@pytest.mark.parametrize("claim", ["once", "lease"])
async def test_subscriptions_that_are_killed_at_random_lose_no_call_and_run_none_twice(
    store_servers: StoreServers, claim: str
) -> None:
    random_ = random.Random(7)
    async with pair(store_servers.url, group="G", claim=claim, concurrency=64) as (frontend, _, ran):
        killed = 0

        async def kill() -> None:
            nonlocal killed
            while True:
                await asyncio.sleep(random_.uniform(0.01, 0.1))
                for primary in store_servers.primaries:
                    killed += primary.call("CLIENT", "KILL", "TYPE", "pubsub")

        killing = asyncio.create_task(kill())

        async def ask(n: int) -> bytes:
            return bytes(await frontend.request(b"%d" % n, id=f"call-{n}", ttl=20, timeout=60))

        answers: list[bytes] = []
        for first in range(0, 2000, 50):
            answers += await asyncio.gather(*(ask(n) for n in range(first, first + 50)))
        killing.cancel()
    assert killed > 5
    assert answers == [b"%d" % n for n in range(2000)]
    assert sorted(ran) == sorted(f"call-{n}" for n in range(2000))


@pytest.mark.parametrize("own_id", [False, True], ids=["made id", "own id"])
@pytest.mark.parametrize("claim", ["once", "lease"])
async def test_all_connections_that_are_killed_at_any_point_lose_no_call(
    start: Start, claim: str, own_id: bool
) -> None:
    with start() as server:
        async with pair(server.url, group="G", claim=claim) as (frontend, _, ran):
            for n in range(30):
                id = f"call-{n}" if own_id else None
                asking = asyncio.create_task(frontend.request(b"%d" % n, timeout=20, id=id))
                for _ in range(n % 10):
                    await asyncio.sleep(0)
                server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                assert await asking == b"%d" % n
            assert len(ran) == len(set(ran)) == 30


async def test_a_server_that_is_restarted_without_its_flags_is_told_again(start: Start) -> None:
    with start(durability="always") as server:
        async with pair(server.url) as (frontend, _, _):
            assert await frontend.request(b"before") == b"before"
            server.kill()
            server.start()
            assert b"K" not in server.call("CONFIG", "GET", "notify-keyspace-events")[1]
            assert await frontend.request(b"after") == b"after"
            flags = server.call("CONFIG", "GET", "notify-keyspace-events")[1]
            assert b"K" in flags


@pytest.mark.parametrize("claim", ["once", "lease"])
async def test_calls_that_wait_while_the_server_is_restarted_are_answered_and_run_once(
    start: Start, claim: str
) -> None:
    with start(durability="always") as server:
        async with await Unit.connect("FE", server.url) as frontend:
            asking = [asyncio.create_task(frontend.request(b"%d" % n, ttl=30, timeout=60)) for n in range(50)]
            while server.call("DBSIZE") < 50:
                await asyncio.sleep(0.01)
            async with pair(server.url, group="G", claim=claim, concurrency=2) as (_, _, ran):
                await asking[0]
                server.kill()
                server.start()
                assert await asyncio.gather(*asking) == [b"%d" % n for n in range(50)]
                assert len(ran) == len(set(ran)) == 50


async def test_flags_that_others_have_set_are_kept(start: Start) -> None:
    with start(options=["--notify-keyspace-events", "Exg"]) as server:
        async with pair(server.url) as (frontend, _, _):
            assert await frontend.request(b"x") == b"x"
        assert set(server.call("CONFIG", "GET", "notify-keyspace-events")[1].decode()) >= set("ExgK$")


async def test_without_events_and_without_the_right_to_set_them_the_keys_are_polled(start: Start) -> None:
    with start() as server:
        server.call("ACL", "SETUSER", "weak", "on", ">pw", "~MUF/*", "&*", "+@all", "-config")
        url = server.url.replace("unix://", "unix://weak:pw@")
        async with pair(url) as (frontend, backend, _):
            assert await frontend.request(b"polled") == b"polled"
            assert frontend.statistics.polls
            assert backend.statistics.polls
        assert server.call("CONFIG", "GET", "notify-keyspace-events")[1] == b""


@asynccontextmanager
async def least_rights(start: Start) -> AsyncIterator[tuple[Server, Unit, Unit]]:
    """A server whose flags are set, a frontend and a backend with only the rights that the note needs."""
    with start(options=["--notify-keyspace-events", "K$"]) as server:
        common = ["on", ">pw", "+get", "+set", "+psubscribe", "+punsubscribe", "+hello", "+auth", "+ping", "+client"]
        server.call(
            "ACL",
            "SETUSER",
            "fe",
            *common,
            "%W~MUF/FE/REQ/*",
            "%R~MUF/FE/RES/*",
            "%R~MUF/FE/ERR/*",
            "&__keyspace@0__:MUF/FE/RES/*",
            "&__keyspace@0__:MUF/FE/ERR/*",
        )
        server.call(
            "ACL",
            "SETUSER",
            "be",
            *common,
            "%R~MUF/*/REQ/*",
            "%W~MUF/*/RES/*",
            "%W~MUF/*/ERR/*",
            "&__keyspace@0__:MUF/*/REQ/*",
        )
        frontend_url, backend_url = (server.url.replace("unix://", f"unix://{user}:pw@") for user in ("fe", "be"))
        async with await Unit.connect("FE", frontend_url) as frontend, await Unit.connect("BE", backend_url) as backend:
            backend.on_request(lambda request: request.raw)
            await backend.ready()
            yield server, frontend, backend


async def test_users_with_only_the_rights_that_the_note_needs(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    async with least_rights(start) as (server, frontend, backend):
        assert await frontend.request(b"x") == b"x"
        assert not frontend.statistics.polls, "an event that comes proves that events come"
        assert not backend.statistics.polls
        for n in range(20):
            asking = asyncio.create_task(frontend.request(b"%d" % n, timeout=20))
            for _ in range(n % 5):
                await asyncio.sleep(0)
            server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert await asking == b"%d" % n
    assert caplog.text.count("are not looked for") == 1, "what is not allowed is said once, not at each attempt"


async def test_one_who_may_try_knows_from_the_start_that_events_come(start: Start) -> None:
    """Without CONFIG, as on many managed servers; the rights are those that the guide names."""
    with start(options=["--notify-keyspace-events", "K$"]) as server:
        rights = "+get +set +psubscribe +punsubscribe +subscribe +unsubscribe +expire +del +hello +auth +ping +client"
        keys = "%R~MUF/*/REQ/* %W~MUF/*/RES/* %W~MUF/*/ERR/* ~MUF/BE/KEEP/.probe:*"
        channels = "&__keyspace@0__:MUF/*/REQ/* &__keyspace@0__:MUF/BE/KEEP/.probe:*"
        server.call("ACL", "SETUSER", "be", "on", ">pw", *rights.split(), *keys.split(), *channels.split())
        async with await Unit.connect("BE", server.url.replace("unix://", "unix://be:pw@")) as backend:
            backend.on_request(lambda request: request.raw)
            await backend.ready()
            assert not backend.statistics.polls
            assert [key for key in server.call("KEYS", "*") if not key.startswith(b"MUF/")] == []


async def test_the_asker_with_the_least_rights_is_not_troubled_by_a_connection_that_breaks(start: Start) -> None:
    """It may not read what it wrote, so it can't see whether the request got through."""
    async with least_rights(start) as (server, frontend, backend):
        await backend.close()
        assert isinstance(frontend.store, Store)
        asking = asyncio.create_task(frontend.request(b"x", id="1", timeout=20))
        while not server.call("EXISTS", "MUF/FE/REQ/1"):
            await asyncio.sleep(0.01)
        call = frontend._frontend._calls["1"]
        call.again = True  # as after a connection that broke while the request was under way
        frontend._frontend._ask(call)
        await asyncio.sleep(0.05)
        server.call("SET", "MUF/FE/RES/1", "answer", "EX", 10)
        assert await asking == b"answer"


async def test_a_backend_that_stops_while_the_store_is_away_stops_all_the_same(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mpreg.apps.muf.backend.FAREWELL_S", 0.1)
    started = asyncio.Event()

    async def never(request: Request) -> None:
        started.set()
        await asyncio.Event().wait()

    with start() as server:
        unit = await Unit.connect("BE", server.url)
        unit.on_request(concurrency=3)(never)
        await unit.ready()
        server.call("SET", "MUF/FE/REQ/1", "x", "EX", 10)
        await started.wait()
        server.kill()
        async with asyncio.timeout(10):
            await unit.close(0)


async def test_an_answer_waits_for_a_server_that_is_full(start: Start) -> None:
    with start() as server:
        full = asyncio.Event()

        async def fill(request: Request) -> bytes:
            server.call("CONFIG", "SET", "maxmemory", "1")
            full.set()
            return b"answer"

        async with await Unit.connect("BE", server.url) as backend, await connect(server.url) as store:
            backend.on_request(fill)
            await backend.ready()
            await store.command("SET", "MUF/FE/REQ/1", "x", "EX", 10)
            await full.wait()
            server.call("CONFIG", "SET", "maxmemory", "0")
            assert await until_set(store, "MUF/FE/RES/1") == b"answer"


async def test_a_user_who_may_not_write_is_told_so(start: Start) -> None:
    with start() as server:
        server.call("ACL", "SETUSER", "reader", "on", ">pw", "%R~*", "&*", "+@all")
        url = server.url.replace("unix://", "unix://reader:pw@")
        async with await Unit.connect("FE", url) as frontend:
            with pytest.raises(StoreError) as refused:
                await frontend.request(b"x")
            assert refused.value.code == "STORE_NOT_PERMITTED"


async def test_a_full_server_refuses_the_request_at_once(start: Start) -> None:
    with start() as server:
        async with await Unit.connect("FE", server.url) as frontend:
            with pytest.raises(MufTimeout):
                await frontend.request(b"x", timeout=0.01)
            server.call("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(StoreError) as refused:
                await frontend.request(b"x")
            assert refused.value.code == "STORE_OUT_OF_MEMORY"


async def test_in_another_database_only_its_own_events_count(start: Start) -> None:
    with start() as server:
        url = server.url + "?db=5"
        async with pair(url) as (frontend, _, ran):
            server.call("SET", "MUF/FE/REQ/other-database", "x", "EX", 10)
            assert await frontend.request(b"x", id="mine") == b"x"
            assert ran == ["mine"]


async def test_a_lease_is_renewed_while_its_handler_runs(unit: Units, store: Store) -> None:
    ran: list[str] = []
    release = asyncio.Event()
    for name in ("ONE", "TWO"):
        backend = await unit(name)

        @backend.on_request(group="G", claim="lease", lease_s=0.2)
        async def wait(request: Request) -> bytes:
            ran.append(request.id)
            await release.wait()
            return b"done"

        await backend.ready()
    await store.command("SET", "MUF/FE/REQ/1", "x", "EX", 30)
    claim = "MUF/G/KEEP/claim.FE.1"
    holder = await until_set(store, claim)
    async with store.keyspace_events(keys=[claim], needs="g") as events:
        for _ in range(8):  # more than two leases
            await anext(events)
    assert await store.command("GET", claim) == holder
    release.set()
    assert await until_set(store, "MUF/FE/RES/1") == b"done"
    assert ran == ["1"]


async def test_no_key_is_left_that_the_note_does_not_allow(store_servers: StoreServers, store: Store) -> None:
    async with pair(store_servers.url, group="G", claim="lease") as (frontend, _, _):
        await asyncio.gather(*(frontend.request(b"x") for _ in range(20)))
    keys = await all_keys(store)
    assert keys
    assert all(key.startswith(b"MUF/") and key.count(b"/") == 3 for key in keys)
    assert all([await store.command("PTTL", key) > 0 for key in keys])


@pytest.mark.slow
async def test_a_cluster_whose_primaries_change_loses_no_call_and_runs_none_twice() -> None:
    """R-M11: a replica that takes over has flags of its own, and events come from it from then on."""
    with cluster(primaries=3, replicas=1) as nodes:
        async with pair(nodes.url, group="G", concurrency=64) as (frontend, _, ran):

            async def ask(n: int) -> bytes:
                return bytes(await frontend.request(b"%d" % n, id=f"call-{n}", ttl=30, timeout=60))

            answers: list[bytes] = []
            for first in range(0, 600, 50):
                asking = asyncio.gather(*(ask(n) for n in range(first, first + 50)))
                if first in (100, 300):
                    await asyncio.to_thread(nodes.fail_over, 12_000 if first == 100 else 100)
                answers += await asking
            assert answers == [b"%d" % n for n in range(600)]
            assert sorted(ran) == sorted(f"call-{n}" for n in range(600))
            assert not frontend.statistics.polls

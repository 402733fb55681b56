"""What a conversation survives: lost connections, killed and stopped processes, servers without events or rights."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from tests.apps.muf.conftest import Units
from tests.apps.muf.peer import all_keys, until_set
from tests.store.servers import Server, StoreServers, redis7, valkey

from mpreg.apps.muf import MufTimeout, Request, Unit
from mpreg.errors import StoreError
from mpreg.store import Store, connect

pytestmark = pytest.mark.anyio


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


async def test_subscriptions_that_are_killed_at_random_lose_no_call_and_run_none_twice() -> None:
    random_ = random.Random(7)
    with valkey() as server:
        async with pair(server.url, group="G", concurrency=64) as (frontend, _, ran):

            async def kill() -> None:
                while True:
                    await asyncio.sleep(random_.uniform(0.01, 0.1))
                    server.call("CLIENT", "KILL", "TYPE", "pubsub")

            killing = asyncio.create_task(kill())

            async def ask(n: int) -> bytes:
                return bytes(await frontend.request(b"%d" % n, id=f"call-{n}", ttl=20, timeout=60))

            answers: list[bytes] = []
            for start in range(0, 2000, 50):
                answers += await asyncio.gather(*(ask(n) for n in range(start, start + 50)))
            killing.cancel()
        assert answers == [b"%d" % n for n in range(2000)]
        assert sorted(ran) == sorted(f"call-{n}" for n in range(2000))


@pytest.mark.parametrize("own_id", [False, True], ids=["made id", "own id"])
@pytest.mark.parametrize("claim", ["once", "lease"])
async def test_all_connections_that_are_killed_at_any_point_lose_no_call(claim: str, own_id: bool) -> None:
    with valkey() as server:
        async with pair(server.url, group="G", claim=claim) as (frontend, _, ran):
            for n in range(30):
                id = f"call-{n}" if own_id else None
                asking = asyncio.create_task(frontend.request(b"%d" % n, timeout=20, id=id))
                for _ in range(n % 10):
                    await asyncio.sleep(0)
                server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                assert await asking == b"%d" % n
            assert len(ran) == len(set(ran)) == 30


async def test_a_server_that_is_restarted_without_its_flags_is_told_again() -> None:
    with valkey(durability="always") as server:
        async with pair(server.url) as (frontend, _, _):
            assert await frontend.request(b"before") == b"before"
            server.kill()
            server.start()
            assert b"K" not in server.call("CONFIG", "GET", "notify-keyspace-events")[1]
            assert await frontend.request(b"after") == b"after"
            flags = server.call("CONFIG", "GET", "notify-keyspace-events")[1]
            assert b"K" in flags


async def test_flags_that_others_have_set_are_kept() -> None:
    with valkey(options=["--notify-keyspace-events", "Exg"]) as server:
        async with pair(server.url) as (frontend, _, _):
            assert await frontend.request(b"x") == b"x"
        assert set(server.call("CONFIG", "GET", "notify-keyspace-events")[1].decode()) >= set("ExgK$")


async def test_without_events_and_without_the_right_to_set_them_the_keys_are_polled() -> None:
    with valkey() as server:
        server.call("ACL", "SETUSER", "weak", "on", ">pw", "~MUF/*", "&*", "+@all", "-config")
        url = server.url.replace("unix://", "unix://weak:pw@")
        async with pair(url) as (frontend, backend, _):
            assert await frontend.request(b"polled") == b"polled"
            assert frontend.statistics.polls
            assert backend.statistics.polls
        assert server.call("CONFIG", "GET", "notify-keyspace-events")[1] == b""


@asynccontextmanager
async def least_rights() -> AsyncIterator[tuple[Server, Unit, Unit]]:
    """A server whose flags are set, a frontend and a backend with only the rights that the note needs."""
    with valkey(options=["--notify-keyspace-events", "K$"]) as server:
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


async def test_users_with_only_the_rights_that_the_note_needs(caplog: pytest.LogCaptureFixture) -> None:
    async with least_rights() as (server, frontend, backend):
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


async def test_the_asker_with_the_least_rights_is_not_troubled_by_a_connection_that_breaks() -> None:
    """It may not read what it wrote, so it can't see whether the request got through."""
    async with least_rights() as (server, frontend, backend):
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mpreg.apps.muf.backend.FAREWELL_S", 0.1)
    started = asyncio.Event()

    async def never(request: Request) -> None:
        started.set()
        await asyncio.Event().wait()

    with valkey() as server:
        unit = await Unit.connect("BE", server.url)
        unit.on_request(concurrency=3)(never)
        await unit.ready()
        server.call("SET", "MUF/FE/REQ/1", "x", "EX", 10)
        await started.wait()
        server.kill()
        async with asyncio.timeout(10):
            await unit.close(0)


async def test_an_answer_waits_for_a_server_that_is_full() -> None:
    with valkey() as server:
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


async def test_a_user_who_may_not_write_is_told_so() -> None:
    with valkey() as server:
        server.call("ACL", "SETUSER", "reader", "on", ">pw", "%R~*", "&*", "+@all")
        url = server.url.replace("unix://", "unix://reader:pw@")
        async with await Unit.connect("FE", url) as frontend:
            with pytest.raises(StoreError) as refused:
                await frontend.request(b"x")
            assert refused.value.code == "STORE_NOT_PERMITTED"


async def test_a_full_server_refuses_the_request_at_once() -> None:
    with valkey() as server:
        async with await Unit.connect("FE", server.url) as frontend:
            with pytest.raises(MufTimeout):
                await frontend.request(b"x", timeout=0.01)
            server.call("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(StoreError) as refused:
                await frontend.request(b"x")
            assert refused.value.code == "STORE_OUT_OF_MEMORY"


async def test_in_another_database_only_its_own_events_count() -> None:
    with valkey() as server:
        url = server.url + "?db=5"
        async with pair(url) as (frontend, _, ran):
            server.call("SET", "MUF/FE/REQ/other-database", "x", "EX", 10)
            assert await frontend.request(b"x", id="mine") == b"x"
            assert ran == ["mine"]


# --- processes that stop and die --------------------------------------------------------------------------------------

WORKER = """
import asyncio, sys
from mpreg.apps.muf import Unit

async def main(url, name, claim):
    unit = await Unit.connect(name, url)

    @unit.on_request(group="G", claim=claim, lease_s=0.6, concurrency=4)
    async def work(request):
        await unit.store.command("RPUSH", "ran", f"{request.id}:{name}")
        if request.raw == b"hang" and name == "DOOMED":
            await asyncio.Event().wait()
        return name.encode()

    await unit.ready()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def worker(url: str, name: str, claim: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", WORKER, url, name, claim], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            os.kill(process.pid, signal.SIGCONT)
            process.kill()


@pytest.fixture
def server() -> Iterator[Server]:
    with valkey() as started:
        yield started


async def test_the_holder_of_a_lease_is_killed_and_another_finishes_the_request(server: Server) -> None:
    async with await connect(server.url) as store:
        with worker(server.url, "DOOMED", "lease") as doomed:
            await store.command("SET", "MUF/FE/REQ/1", "hang", "EX", 30)
            await until_set(store, "MUF/G/KEEP/claim.FE.1")
            with worker(server.url, "OTHER", "lease"):
                doomed.kill()
                assert await until_set(store, "MUF/FE/RES/1") == b"OTHER"
        assert await store.command("LRANGE", "ran", 0, -1) == [b"1:DOOMED", b"1:OTHER"]


async def test_the_holder_of_a_claim_is_killed_and_nobody_runs_the_request_twice(server: Server) -> None:
    async with await connect(server.url) as store, await Unit.connect("FE", server.url) as frontend:
        with worker(server.url, "DOOMED", "once") as doomed:
            asking = asyncio.create_task(frontend.request(b"hang", id="1", ttl=1, timeout=1.5))
            await until_set(store, "MUF/G/KEEP/claim.FE.1")
            with worker(server.url, "OTHER", "once"):
                doomed.kill()
                with pytest.raises(MufTimeout):
                    await asking
        assert await store.command("LRANGE", "ran", 0, -1) == [b"1:DOOMED"]


async def test_a_stopped_backend_never_runs_a_request_that_expired_meanwhile(server: Server) -> None:
    async with await connect(server.url) as store:
        with worker(server.url, "STOPPED", "once") as stopped:
            os.kill(stopped.pid, signal.SIGSTOP)
            await store.command("SET", "MUF/FE/REQ/old", "x", "PX", 200)
            while await store.command("EXISTS", "MUF/FE/REQ/old"):
                await asyncio.sleep(0.02)
            os.kill(stopped.pid, signal.SIGCONT)
            await store.command("SET", "MUF/FE/REQ/new", "x", "EX", 10)
            assert await until_set(store, "MUF/FE/RES/new") == b"STOPPED"
        assert await store.command("LRANGE", "ran", 0, -1) == [b"new:STOPPED"]


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
async def test_the_same_on_redis_7() -> None:
    with redis7() as server:
        async with pair(server.url, group="G", claim="lease") as (frontend, _, ran):
            assert await asyncio.gather(*(frontend.request(b"%d" % n) for n in range(200))) == [
                b"%d" % n for n in range(200)
            ]
            assert len(ran) == 200

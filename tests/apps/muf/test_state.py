"""KEEP: state of a unit, for all to see."""

from __future__ import annotations

import asyncio

import pytest
from tests.apps.muf.conftest import Units
from tests.store.servers import StoreServers, valkey

from mpreg.apps.muf import Request, Unit
from mpreg.errors import StoreError
from mpreg.store import Store, connect

pytestmark = pytest.mark.anyio


async def test_state_is_kept_for_a_day_or_as_long_as_said_or_for_ever(unit: Units, store: Store) -> None:
    one = await unit("UNIT")
    await one.keep("default", b"a")
    await one.keep("short", b"b", ttl=5)
    await one.keep("ever", b"c", ttl=None)
    assert 86_399 <= await store.command("TTL", "MUF/UNIT/KEEP/default") <= 86_400
    assert 4 <= await store.command("TTL", "MUF/UNIT/KEEP/short") <= 5
    assert await store.command("TTL", "MUF/UNIT/KEEP/ever") == -1


async def test_anyone_reads_what_a_unit_keeps(unit: Units) -> None:
    one, other = await unit("ONE", codec="json"), await unit("OTHER", codec="json")
    await one.keep("state", {"a": 1})
    assert await one.kept("state") == {"a": 1}
    assert await other.kept("state", unit="ONE") == {"a": 1}
    assert await other.kept("state") is None


async def test_watching_tells_the_value_now_and_what_comes(unit: Units, store: Store) -> None:
    one, other = await unit("ONE", codec="str"), await unit("OTHER", codec="str")
    await one.keep("state", "first")
    values = other.watch("state", unit="ONE")
    assert await anext(values) == "first"
    await one.keep("state", "second")
    assert await anext(values) == "second"
    await store.command("SET", "MUF/ONE/KEEP/state", "third")
    assert await anext(values) == "third"
    await values.aclose()


async def test_watching_goes_on_where_the_server_tells_nothing() -> None:
    with valkey() as server:
        server.call("ACL", "SETUSER", "weak", "on", ">pw", "~MUF/*", "&*", "+@all", "-config")
        url = server.url.replace("unix://", "unix://weak:pw@")
        async with await Unit.connect("ONE", url) as one:
            values = one.watch("state")
            await one.keep("state", b"first")
            assert await anext(values) == b"first"
            await one.keep("state", b"second")
            assert await anext(values) == b"second"
            await values.aclose()


async def test_watching_survives_the_loss_of_the_connection() -> None:
    with valkey() as server:
        async with await Unit.connect("ONE", server.url) as one:
            values = one.watch("state")
            await one.keep("state", b"first")
            assert await anext(values) == b"first"
            for n in range(5):
                server.call("CLIENT", "KILL", "TYPE", "pubsub")
                server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                server.call("SET", "MUF/ONE/KEEP/state", n)
                assert await anext(values) == b"%d" % n
            await values.aclose()


async def test_watching_ends_with_the_unit_or_with_its_store(store_servers: StoreServers) -> None:
    one = await Unit.connect("ONE", store_servers.url)
    waiting = asyncio.ensure_future(anext(one.watch("state")))
    while not one._state._watching:
        await asyncio.sleep(0)
    await one.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    own = await connect(store_servers.url)
    two = await Unit.connect("TWO", own)
    waiting = asyncio.ensure_future(anext(two.watch("state")))
    while not two._state._watching:
        await asyncio.sleep(0)
    await own.close()
    with pytest.raises(StoreError) as closed:
        await waiting
    assert closed.value.code == "STORE_CLOSED"
    await two.close()


async def test_a_unit_that_lives_says_so_from_the_start(unit: Units, store: Store) -> None:
    other = await unit("OTHER", codec="json")
    assert not await other.is_alive("ONE")
    await unit("ONE", alive=True)
    assert await other.is_alive("ONE")
    assert 0 < await store.command("TTL", "MUF/ONE/KEEP/alive") <= 15


async def test_a_unit_that_may_not_say_that_it_lives_is_told_so_at_once() -> None:
    with valkey() as server:
        server.call("ACL", "SETUSER", "reader", "on", ">pw", "%R~*", "&*", "+@all")
        with pytest.raises(StoreError) as refused:
            await Unit.connect("ONE", server.url.replace("unix://", "unix://reader:pw@"), alive=True)
        assert refused.value.code == "STORE_NOT_PERMITTED"


async def test_the_asker_sees_how_far_its_request_is(unit: Units) -> None:
    frontend, backend = await unit("FE", codec="str"), await unit("BE", codec="str")
    go_on = asyncio.Event()

    @backend.on_request
    async def work(request: Request) -> str:
        await request.progress("half", ttl=5)
        await go_on.wait()
        return "done"

    await backend.ready()
    notes = frontend.progress("1", backend="BE")
    asking = asyncio.create_task(frontend.request("x", id="1"))
    assert await anext(notes) == "half"
    go_on.set()
    assert await asking == "done"
    await notes.aclose()


@pytest.mark.parametrize("name", ["", "a/b", "a b"])
async def test_bad_names_are_refused(unit: Units, name: str) -> None:
    one = await unit("ONE")
    with pytest.raises(ValueError, match="name"):
        await one.keep(name, b"x")
    with pytest.raises(ValueError, match="ttl"):
        await one.keep("state", b"x", ttl=0)

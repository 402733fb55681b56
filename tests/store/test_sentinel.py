"""A primary behind real sentinels. Starting them takes seconds, so most of it is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.store.servers import Sentinels, eventually, sentinel, valkey

from mpreg.errors import StoreError
from mpreg.store import Gap, KeyEvent, Message, StoreLimits, connect

pytestmark = pytest.mark.anyio
LIMITS = StoreLimits(down_wait_s=30.0, backoff_min_s=0.01, backoff_max_s=0.1)


@pytest.fixture(scope="module")
def watched() -> Iterator[Sentinels]:
    with sentinel(replicas=1, sentinels=3) as made:
        yield made


@pytest.mark.slow
async def test_the_name_is_looked_up_and_a_failover_followed(watched: Sentinels) -> None:
    async with await connect(watched.url, limits=LIMITS) as store, store.keyspace_events("k") as events:
        await store.command("SET", "k", 1)
        assert watched.primary().call("GET", "k") == b"1"
        assert await anext(events) == KeyEvent(b"k", "set")
        async with store.subscribe(["c"]) as subscription:
            new = await asyncio.to_thread(watched.fail_over)
            assert await anext(events) == Gap("reconnect")
            assert await anext(subscription) == Gap("reconnect")
            assert new.call("PUBLISH", "c", "from the new one") == 1
            assert await anext(subscription) == Message(b"c", None, b"from the new one")
        while True:
            try:
                await store.command("SET", "k", 2)
                break
            except StoreError as error:
                if error.code not in ("STORE_CONNECTION_LOST", "STORE_READ_ONLY"):
                    raise
        assert new.call("GET", "k") == b"2"
        while True:
            if await anext(events) == KeyEvent(b"k", "set"):
                break


@pytest.mark.slow
async def test_a_failover_under_load(watched: Sentinels) -> None:
    """What had left may fail, and nobody knows whether it ran; all else goes to the new primary, to its own caller."""
    turns = [0] * 50
    stopping = False
    progress = asyncio.Condition()

    async def call(n: int) -> None:
        while not stopping:
            try:
                await store.command("SET", f"key:{n}", f"{n}:{turns[n]}")
                assert (await store.command("GET", f"key:{n}") or b"%d:" % n).startswith(b"%d:" % n)
            except StoreError as error:
                if error.state_changed is not None and error.code != "STORE_READ_ONLY":
                    raise
                continue
            turns[n] += 1
            async with progress:
                progress.notify_all()

    async def advance() -> None:
        goal = [turn + 3 for turn in turns]
        async with progress:
            await progress.wait_for(lambda: all(turn >= one for turn, one in zip(turns, goal, strict=True)))

    async with await connect(watched.url, limits=LIMITS) as store, asyncio.TaskGroup() as group:
        for n in range(len(turns)):
            group.create_task(call(n))
        await advance()
        new = await asyncio.to_thread(watched.fail_over)
        while store.primaries()[0].address != new.address:
            await advance()
        await advance()
        stopping = True


@pytest.mark.slow
async def test_a_primary_that_is_killed_is_replaced_and_sentinels_that_are_dead_are_passed_over(
    watched: Sentinels,
) -> None:
    async with await connect(watched.url, limits=LIMITS) as store:
        watched.sentinels[2].kill()
        old = watched.primary()
        old.kill()
        while True:
            try:
                await store.command("SET", "after", 1)
                break
            except StoreError as error:
                if error.code != "STORE_CONNECTION_LOST":
                    raise
        # Each sentinel learns of it in its own time; the one that the store has asked was the first.
        await asyncio.to_thread(eventually, lambda: watched.primary() is not old, "all sentinels know")
        assert watched.primary().call("GET", "after") == b"1"


@pytest.mark.slow
async def test_a_name_that_no_sentinel_knows_is_named(watched: Sentinels) -> None:
    watched.sentinels[0].call("PING")
    with pytest.raises(StoreError) as unknown:
        await connect(f"valkey+sentinel://127.0.0.1:{watched.sentinels[0].port}/wrong-name")
    assert (unknown.value.code, unknown.value.details["part"]) == ("STORE_INVALID_URL", "path")
    assert "wrong-name" in str(unknown.value)


async def test_a_server_that_is_no_sentinel_is_named() -> None:
    with valkey(tcp=True) as server:
        with pytest.raises(StoreError) as wrong:
            await connect(f"valkey+sentinel://127.0.0.1:{server.port}/main")
        assert (wrong.value.code, wrong.value.details["part"]) == ("STORE_INVALID_URL", "host")


async def test_no_sentinel_answers() -> None:
    with valkey(tcp=True) as server:
        port = server.port
    with pytest.raises(StoreError) as nobody:
        await connect(f"valkey+sentinel://127.0.0.1:{port}/main")
    assert nobody.value.code == "STORE_UNAVAILABLE"

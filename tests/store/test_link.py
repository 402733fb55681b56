"""The shared connection: every caller gets its own reply, whatever the others do and whatever happens to it."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.echo import echo
from tests.store.servers import StoreServers, redis7, valkey

from mpreg.errors import StoreError
from mpreg.store import Gap, Message, Script, StoreLimits, connect

pytestmark = pytest.mark.anyio
NO_HELLO = ["--rename-command", "HELLO", ""]
QUICK = StoreLimits(backoff_min_s=0.001, backoff_max_s=0.01)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    callers=st.sampled_from([1, 50, 1000, 3000]),
    share=st.sampled_from([0.0, 0.1, 0.5, 0.95]),
)
def test_thousands_of_callers_of_whom_some_are_cancelled_each_get_their_own_reply(
    seed: int, callers: int, share: float
) -> None:
    async def play() -> None:
        choose = random.Random(seed)
        async with echo() as server:
            server.splinter = random.Random(seed)
            async with await connect(server.url) as store:

                async def call(n: int) -> None:
                    for turn in range(3):
                        expected = b"%d-%d" % (n, turn) + b"x" * choose.randint(0, 50)
                        assert await store.command("ECHO", expected) == expected

                tasks = [asyncio.create_task(call(n)) for n in range(callers)]
                doomed = [task for task in tasks if choose.random() < share]
                while doomed:
                    for task in doomed[:100]:
                        task.cancel()
                    del doomed[:100]
                    await store.command("ECHO", b"pace")
                results = await asyncio.gather(*tasks, return_exceptions=True)
                assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results)
                assert await store.command("ECHO", b"after") == b"after"
                assert store.primaries()[0].waiting == 0

    asyncio.run(play())


async def test_callers_cancelled_at_random_on_a_real_server(store_servers: StoreServers) -> None:
    choose = random.Random(7)
    async with await connect(store_servers.url) as store:

        async def call(n: int) -> None:
            for turn in range(20):
                value = b"%d:%d" % (n, turn)
                await store.command("SET", f"key:{n}", value)
                assert await store.command("GET", f"key:{n}") == value

        tasks = [asyncio.create_task(call(n)) for n in range(500)]
        for task in choose.sample(tasks, 200):
            await store.command("ECHO", "pace")
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(result is None for result in results) >= 300
        assert not [result for result in results if isinstance(result, Exception)]


async def test_commands_of_one_turn_leave_in_one_write() -> None:
    async with echo() as server, await connect(server.url) as store:
        link = store.primaries()[0]._link
        assert link is not None
        transport, writes = link._transport, []

        class Recorder:
            def write(self, data: bytes) -> None:
                writes.append(data)
                transport.write(data)

        link._transport = Recorder()
        await asyncio.gather(*[store.send("ECHO", n) for n in range(50)])
        link._transport = transport
        assert len(writes) == 1


async def test_what_was_under_way_when_the_connection_broke_may_have_run() -> None:
    async with echo() as server, await connect(server.url, limits=QUICK) as store:
        server.silent = True
        under_way = store.send("ECHO", "1")
        while server.commands[-1][0] != b"ECHO":
            await asyncio.sleep(0)
        server.silent = False
        server.drop()
        with pytest.raises(StoreError) as lost:
            await under_way
        assert lost.value.code == "STORE_CONNECTION_LOST"
        assert lost.value.state_changed is None
        assert lost.value.retryable
        assert await store.command("ECHO", "2") == b"2"


async def test_what_had_not_left_is_sent_on_the_next_connection() -> None:
    async with echo() as server, await connect(server.url, limits=QUICK) as store:
        server.drop()
        # Nothing has been read of the loss yet: these may be written to the old connection or wait for the new one.
        first = await asyncio.gather(*[store.send("ECHO", n) for n in range(5)], return_exceptions=True)
        assert all(r == b"%d" % n or getattr(r, "state_changed", 0) is None for n, r in enumerate(first))
        while store.primaries()[0].is_up:
            server.drop()
            await asyncio.sleep(0)
        assert await asyncio.gather(*[store.send("ECHO", n) for n in range(5)]) == [b"%d" % n for n in range(5)]


async def test_a_command_given_while_the_store_is_down_waits_so_long_and_has_surely_not_run() -> None:
    limits = StoreLimits(backoff_min_s=0.001, backoff_max_s=0.01, down_wait_s=0.1)
    async with echo() as server:
        store = await connect(server.url, limits=limits)
        async with store:
            server.answers = lambda command: b"-LOADING not yet\r\n" if command[0] == b"PING" else None
            server.drop()
            while store.primaries()[0].is_up:
                await asyncio.sleep(0)
            with pytest.raises(StoreError) as down:
                await store.command("ECHO", "1")
            assert down.value.code == "STORE_UNAVAILABLE"
            assert down.value.state_changed is False
            assert down.value.details["cause"] == "STORE_LOADING"
            assert [b"ECHO", b"1"] not in server.commands
            server.answers = lambda command: None
            assert await store.command("ECHO", "2") == b"2"


async def test_pending_commands_are_bounded_send_refuses_and_command_waits() -> None:
    limits = StoreLimits(pending_commands_max=10)
    async with echo() as server, await connect(server.url, limits=limits) as store:
        futures = [store.send("ECHO", n) for n in range(10)]
        with pytest.raises(StoreError) as busy:
            store.send("ECHO", "over")
        assert busy.value.code == "STORE_BUSY"
        assert busy.value.details["commands"] == 10
        waiting = [asyncio.create_task(store.command("ECHO", n)) for n in range(100)]
        assert await asyncio.gather(*futures) == [b"%d" % n for n in range(10)]
        assert await asyncio.gather(*waiting) == [b"%d" % n for n in range(100)]


async def test_unsent_bytes_are_bounded() -> None:
    limits = StoreLimits(unsent_bytes_max=100_000)
    async with echo() as server, await connect(server.url, limits=limits) as store:
        big = b"x" * 60_000
        futures = [store.send("ECHO", big), store.send("ECHO", big)]
        with pytest.raises(StoreError) as busy:
            store.send("ECHO", b"small")
        assert busy.value.details["unsent_bytes"] > 100_000
        assert await store.command("ECHO", b"small") == b"small"
        assert await asyncio.gather(*futures) == [big, big]


async def test_a_server_that_owes_a_reply_and_is_silent_is_given_up() -> None:
    limits = StoreLimits(beat_s=0.05, backoff_min_s=0.001, backoff_max_s=0.01)
    async with echo() as server, await connect(server.url, limits=limits) as store:
        server.silent = True
        under_way = store.send("ECHO", "1")
        with pytest.raises(StoreError, match="said nothing"):
            await under_way
        server.silent = False
        assert await store.command("ECHO", "2") == b"2"


async def test_big_values_go_through_in_any_order_with_small_ones(store_servers: StoreServers) -> None:
    async with await connect(store_servers.url) as store:
        values = {f"key:{n}": random.Random(n).randbytes(1 << (n % 22)) for n in range(40)}
        await asyncio.gather(*[store.command("SET", key, value) for key, value in values.items()])
        got = await asyncio.gather(*[store.command("GET", key) for key in values])
        assert got == list(values.values())


async def test_scripts_flushed_while_they_are_called(store_servers: StoreServers) -> None:
    script = Script.of("return ARGV[1]")
    async with await connect(store_servers.url) as store:
        flushes = [primary.send("SCRIPT", "FLUSH") for _ in range(20) for primary in store.primaries()]
        calls = [store.send_script(script, [f"k{n}"], [n]) for n in range(200)]
        more = [primary.send("SCRIPT", "FLUSH") for _ in range(20) for primary in store.primaries()]
        assert await asyncio.gather(*calls) == [b"%d" % n for n in range(200)]
        await asyncio.gather(*flushes, *more)


async def test_a_subscription_survives_a_server_that_is_killed_and_marks_the_gap() -> None:
    with valkey() as server:
        async with (
            await connect(server.url, limits=QUICK) as store,
            store.subscribe(["c"]) as one,
            store.subscribe(patterns=["*"]) as two,
        ):
            server.kill()
            server.start()
            assert await anext(one) == Gap("reconnect")
            assert await anext(two) == Gap("reconnect")
            assert server.call("PUBLISH", "c", "after") == 2
            assert await anext(one) == Message(b"c", None, b"after")
            assert await anext(two) == Message(b"c", b"*", b"after")


async def test_where_hello_is_forbidden_the_older_protocol_does() -> None:
    with valkey(options=NO_HELLO, password="secret") as server:
        async with await connect(f"unix://:secret@{server.socket}?db=3") as store:
            assert (store.server.name, store.server.protocol) == ("valkey", 2)
            await store.command("SET", "key", "value")
            assert server.call("INFO", "keyspace").count(b"db3") == 1
            # What looks like a message of a subscription is no more than a list here.
            await store.command("RPUSH", "list", "message", "channel", "data")
            assert await store.command("LRANGE", "list", 0, -1) == [b"message", b"channel", b"data"]
            async with store.subscribe(["c"], ["p*"]) as subscription:
                await store.command("PUBLISH", "c", "1")
                await store.command("PUBLISH", "p1", "2")
                assert await anext(subscription) == Message(b"c", None, b"1")
                assert await anext(subscription) == Message(b"p1", b"p*", b"2")
            async with store.keyspace_events("k") as events:
                await store.command("SET", "k", 1)
                assert (await anext(events)).event == "set"  # type: ignore[union-attr]


@pytest.mark.slow
async def test_the_older_protocol_on_redis() -> None:
    with redis7(options=NO_HELLO, password="secret") as server:
        async with await connect(f"unix://:secret@{server.socket}") as store:
            assert (store.server.name, store.server.protocol) == ("redis", 2)
            assert await store.command("INCR", "n") == 1

"""The verbs of a store, on each kind of server."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.servers import StoreServers

from mpreg.errors import StoreError
from mpreg.store import Gap, Message, Script, Store, StoreLimits, StoreReplyError, connect

pytestmark = pytest.mark.anyio


async def test_what_is_set_is_got(store: Store) -> None:
    assert await store.command("SET", "key", b"\x00\xff\r\n") == b"OK"
    assert await store.send("GET", b"key") == b"\x00\xff\r\n"
    assert await store.command("GET", "nothing") is None
    assert await store.command("INCRBY", "n", 41) == 41
    assert await store.command("INCRBYFLOAT", "f", 0.5) == b"0.5"


async def test_commands_of_one_caller_run_in_their_order(store: Store) -> None:
    futures = [store.send("RPUSH", "list", n) for n in range(1000)]
    assert await asyncio.gather(*futures) == list(range(1, 1001))
    assert await store.command("LRANGE", "list", 0, -1) == [b"%d" % n for n in range(1000)]


async def test_a_map_comes_as_a_dict_and_a_set_as_a_set(store: Store) -> None:
    await store.command("HSET", "hash", "a", 1, "b", 2)
    await store.command("SADD", "set", "x", "y")
    assert await store.command("HGETALL", "hash") == {b"a": b"1", b"b": b"2"}
    assert await store.command("SMEMBERS", "set") in ({b"x", b"y"}, [b"x", b"y"], [b"y", b"x"])


async def test_an_error_reply_is_an_error_of_its_own_code(store: Store) -> None:
    await store.command("SET", "key", "text")
    with pytest.raises(StoreReplyError) as wrong_type:
        await store.command("LPUSH", "key", "x")
    assert wrong_type.value.code == "STORE_WRONG_TYPE"
    assert wrong_type.value.state_changed is False
    with pytest.raises(StoreReplyError) as other:
        await store.command("INCR", "key")
    assert (other.value.code, other.value.details["reply"]) == ("STORE_REPLY", "ERR")


async def test_an_unknown_command_is_told_without_its_arguments(store: Store) -> None:
    with pytest.raises(StoreReplyError) as unknown:
        await store.command("FROBNICATE", "the-secret")
    assert "the-secret" not in f"{unknown.value} {unknown.value!r}"


@pytest.mark.parametrize("args", [(), ("SET", "key", None), ("SET", "key", True), ("SET", "\ud800", 1), ({},)])
async def test_what_can_not_be_sent_is_refused_and_nothing_is_sent(store: Store, args: tuple[object, ...]) -> None:
    with pytest.raises(StoreError) as refused:
        store.send(*args)
    assert refused.value.code == "STORE_INVALID_COMMAND"
    assert await store.command("EXISTS", "key") == 0


@pytest.mark.parametrize(
    "args",
    [
        ("SUBSCRIBE", "c"),
        (b"select", 1),
        ("BLPOP", "list", 0),
        ("XREAD", "BLOCK", 0, "STREAMS", "s", "$"),
        ("MULTI",),
        ("CLIENT", "REPLY", "OFF"),
    ],
)
async def test_what_would_change_or_hold_up_the_shared_connection_is_refused(
    store: Store, args: tuple[str | bytes | int, ...]
) -> None:
    with pytest.raises(StoreError, match="dedicated"):
        store.send(*args)


async def test_a_script_is_loaded_on_its_first_use_and_again_when_the_server_forgot_it(store: Store) -> None:
    script = Script.of("redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])", "echo.lua")
    assert await store.script(script, ["key"], ["one"]) == b"one"
    for primary in store.primaries():
        await primary.command("SCRIPT", "FLUSH")
    futures = [store.send_script(script, ["key"], [n]) for n in range(20)]
    assert await asyncio.gather(*futures) == [b"%d" % n for n in range(20)]


async def test_a_script_that_fails_midway_says_that_it_may_have_changed_something(store: Store) -> None:
    script = Script.of("redis.call('SET', KEYS[1], 'done') error('stop here')")
    with pytest.raises(StoreError) as failed:
        await store.script(script, ["key"])
    assert failed.value.code == "STORE_SCRIPT_FAILED"
    assert failed.value.state_changed is None
    assert await store.command("GET", "key") == b"done"


async def test_a_script_of_hundreds_of_keys_and_bytes_of_any_kind(store: Store) -> None:
    script = Script.of("return {#KEYS, KEYS[#KEYS], ARGV[1]}")
    keys = [b"{tag}%d" % n for n in range(300)]
    assert await store.script(script, keys, [b"\x00\xff"]) == [300, b"{tag}299", b"\x00\xff"]


async def test_scan_finds_every_key_and_only_those_that_match(store: Store) -> None:
    await asyncio.gather(*[store.send("SET", f"a:{n}", n) for n in range(2000)])
    await asyncio.gather(*[store.send("RPUSH", f"b:{n}", n) for n in range(50)])
    everything = [key for page in [page async for page in store.scan()] for key in page]
    assert set(everything) == {b"a:%d" % n for n in range(2000)} | {b"b:%d" % n for n in range(50)}
    pages = [page async for page in store.scan("*:1?", type="list", count=10)]
    assert {key for page in pages for key in page} == {b"b:1%d" % n for n in range(10)}
    assert all(pages)


async def test_a_subscription_has_begun_when_it_is_entered(store: Store) -> None:
    async with store.subscribe(["news", b"\xff"], ["log.*"]) as subscription:
        await store.command("PUBLISH", "log.a", "1")
        await store.command("PUBLISH", b"\xff", "2")
        await store.command("PUBLISH", "other", "3")
        await store.command("PUBLISH", "news", "4")
        assert [await anext(subscription) for _ in range(3)] == [
            Message(b"log.a", b"log.*", b"1"),
            Message(b"\xff", None, b"2"),
            Message(b"news", None, b"4"),
        ]


async def test_a_channel_is_left_only_by_its_last_reader(store: Store) -> None:
    async with store.subscribe(["news"]) as first:
        async with store.subscribe(["news"]) as second:
            assert await store.command("PUBLISH", "news", "1") == 1
            assert (await anext(first), await anext(second)) == (Message(b"news", None, b"1"),) * 2
        await store.command("PUBLISH", "news", "2")
        assert await anext(first) == Message(b"news", None, b"2")
    async with store.subscribe(["other"]):  # acknowledged after the UNSUBSCRIBE before it
        assert await store.command("PUBLISH", "news", "3") == 0


async def test_a_reader_who_is_behind_loses_the_oldest_and_learns_how_many(store_servers: StoreServers) -> None:
    limits = StoreLimits(subscription_messages_max=10)
    async with (
        await connect(store_servers.url, limits=limits) as store,
        store.subscribe(["c"]) as subscription,
        store.subscribe(["end"]) as end,
    ):
        for n in range(25):
            await store.command("PUBLISH", "c", n)
        await store.command("PUBLISH", "end", "")
        await anext(end)
        assert await anext(subscription) == Gap("overflow", 15)
        assert await anext(subscription) == Message(b"c", None, b"15")


async def test_a_reader_that_is_cancelled_has_taken_nothing(store: Store) -> None:
    async with store.subscribe(["c"]) as subscription:
        reader = asyncio.ensure_future(anext(subscription))
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.wait([reader])
        await store.command("PUBLISH", "c", "1")
        assert await anext(subscription) == Message(b"c", None, b"1")


async def test_a_dedicated_connection_blocks_alone(store: Store) -> None:
    async with store.dedicated("jobs") as link:
        taken = link.send("BLPOP", "jobs", 0)
        assert await store.command("RPUSH", "jobs", "work") == 1
        assert await taken == [b"jobs", b"work"]
        script = Script.of("return 7")
        assert await link.script(script, ["jobs"]) == 7
        await link.command("MULTI")
        await link.command("SET", "jobs", 1)
        assert await link.command("EXEC") == [b"OK"]


async def test_leaving_a_dedicated_connection_ends_what_blocks_on_it(store: Store) -> None:
    async with store.dedicated("jobs") as link:
        taken = link.send("BLPOP", "jobs", 0)
    with pytest.raises(StoreError) as closed:
        await taken
    assert closed.value.code == "STORE_CLOSED"


async def test_a_closed_store_fails_what_waits_and_refuses_what_comes(store_servers: StoreServers) -> None:
    store = await connect(store_servers.url)
    async with store.subscribe(["c"]) as subscription:
        waiting = [store.send("INCR", "n") for _ in range(10)]
        await store.close()
        await store.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {getattr(result, "code", None) for result in results} == {"STORE_CLOSED"}
        with pytest.raises(StoreError) as refused:
            await store.command("PING")
        assert refused.value.code == "STORE_CLOSED"
        with pytest.raises(StoreError) as ended:
            await anext(subscription)
        assert ended.value.code == "STORE_CLOSED"

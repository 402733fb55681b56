"""The note, sentence by sentence, with raw commands on the other side, and with what the server saw of ours."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.apps.muf.conftest import Units
from tests.apps.muf.peer import all_keys, until_set
from tests.store.servers import Connection, Server, StoreServers, cluster, redis7, valkey

from mpreg.apps.muf import MufTimeout, Request, Unit
from mpreg.store import Store, connect

pytestmark = pytest.mark.anyio

BYTES = bytes(range(256))


@contextmanager
def raw(servers: StoreServers) -> Iterator[Connection]:
    """A connection that speaks RESP and knows nothing of this protocol."""
    if servers.kind == "cluster":
        pytest.skip("one raw connection hears one primary only; clusters are tested with clients that hear all")
    servers.primaries[0].call("CONFIG", "SET", "notify-keyspace-events", "K$")
    with closing(Connection(servers.primaries[0])) as connection:
        yield connection


async def hears(peer: Connection, channel: str) -> None:
    """The next event of a raw subscriber; it gets `set` and nothing else (flags K$)."""
    *_, heard, event = await asyncio.to_thread(peer.receive)
    assert (heard.decode(), event) == (channel, b"set")


# --- 2, 3, 4.1, 5.1: a raw backend ------------------------------------------------------------------------------------


async def test_a_raw_backend_hears_reads_and_answers_byte_for_byte(unit: Units, store_servers: StoreServers) -> None:
    with raw(store_servers) as events, raw(store_servers) as commands:
        events.call("PSUBSCRIBE", "__keyspace@0__:MUF/*/REQ/*")
        frontend = await unit("FRONTEND")
        asking = asyncio.create_task(frontend.request(BYTES, id="1"))
        await hears(events, "__keyspace@0__:MUF/FRONTEND/REQ/1")
        assert commands.call("TYPE", "MUF/FRONTEND/REQ/1") == b"string"
        assert commands.call("GET", "MUF/FRONTEND/REQ/1") == BYTES
        assert 9_000 < commands.call("PTTL", "MUF/FRONTEND/REQ/1") <= 10_000
        assert commands.call("SET", "MUF/FRONTEND/RES/1", BYTES[::-1], "EX", 30) == b"OK"
        assert await asking == BYTES[::-1]
        assert set(commands.call("KEYS", "*")) == {b"MUF/FRONTEND/REQ/1", b"MUF/FRONTEND/RES/1"}


@pytest.mark.parametrize("how", ["SETEX", "PSETEX", "SET then EXPIRE", "MULTI", "GETSET", "a script"])
async def test_an_answer_counts_however_it_is_set(unit: Units, store_servers: StoreServers, how: str) -> None:
    with raw(store_servers) as events, raw(store_servers) as commands:
        events.call("PSUBSCRIBE", "__keyspace@0__:MUF/*/REQ/*")
        frontend = await unit("FE")
        asking = asyncio.create_task(frontend.request(b"x", id="1"))
        await hears(events, "__keyspace@0__:MUF/FE/REQ/1")
        key = "MUF/FE/RES/1"
        for command in {
            "SETEX": [("SETEX", key, 30, "answer")],
            "PSETEX": [("PSETEX", key, 30_000, "answer")],
            "SET then EXPIRE": [("SET", key, "answer"), ("EXPIRE", key, 30)],
            "MULTI": [("MULTI",), ("SET", key, "answer", "EX", 30), ("EXEC",)],
            "GETSET": [("GETSET", key, "answer")],
            "a script": [("EVAL", "return redis.call('SET', KEYS[1], 'answer', 'EX', 30)", 1, key)],
        }[how]:
            commands.call(*command)
        assert await asking == b"answer"


# --- 5.1: a raw frontend ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["RES", "ERR"])
async def test_a_raw_frontend_sets_hears_and_reads_byte_for_byte(
    unit: Units, store_servers: StoreServers, status: str
) -> None:
    backend = await unit("BACKEND")

    @backend.on_request
    async def answer(request: Request) -> None:
        await (request.reply if status == "RES" else request.fail)(request.raw[::-1])

    await backend.ready()
    with raw(store_servers) as events, raw(store_servers) as commands:
        for n, channel in enumerate((f"__keyspace@0__:MUF/ME/RES/{n}", f"__keyspace@0__:MUF/ME/ERR/{n}") for n in "12"):
            events.call("SUBSCRIBE", channel[0])
            events.call("SUBSCRIBE", channel[1])
            commands.call("SET", f"MUF/ME/REQ/{n + 1}", BYTES, "EX", 10)
            await hears(events, f"__keyspace@0__:MUF/ME/{status}/{n + 1}")
            assert commands.call("GET", f"MUF/ME/{status}/{n + 1}") == BYTES[::-1]
            assert 29_000 < commands.call("PTTL", f"MUF/ME/{status}/{n + 1}") <= 30_000
        assert set(commands.call("KEYS", "*")) == {f"MUF/ME/{s}/{n}".encode() for s in ("REQ", status) for n in "12"}


@pytest.mark.parametrize("how", ["SETEX", "SET without expiry", "MSET", "SETNX"])
async def test_a_request_counts_however_it_is_set(unit: Units, store: Store, how: str) -> None:
    backend = await unit("BE")
    backend.on_request(lambda request: request.raw)
    await backend.ready()
    key = "MUF/FE/REQ/1"
    answer = "MUF/FE/RES/1"
    async with store.keyspace_events(keys=[answer]) as events:
        await store.command(
            *{
                "SETEX": ("SETEX", key, 10, "x"),
                "SET without expiry": ("SET", key, "x"),
                "MSET": ("MSET", key, "x"),
                "SETNX": ("SETNX", key, "x"),
            }[how]
        )
        await anext(events)
    assert await store.command("GET", answer) == b"x"


@pytest.mark.parametrize("command", [("APPEND", "x"), ("SETRANGE", 0, "x"), ("INCR",), ("EXPIRE", 100)])
async def test_what_is_no_set_is_no_request(
    unit: Units, store: Store, store_servers: StoreServers, command: tuple[Any, ...]
) -> None:
    """R-M3, also where the server tells of more than `set`."""
    with raw(store_servers) as peer:
        peer.call("CONFIG", "SET", "notify-keyspace-events", "KEA")
        peer.call("SET", "MUF/FE/REQ/before", "x", "EX", 10)
        ran: list[str] = []
        backend = await unit("BE")
        backend.on_request(lambda request: ran.append(request.id))
        await backend.ready()
        await until_set(store, "MUF/FE/RES/before")  # what was there at the start has been looked at
        peer.call(command[0], "MUF/FE/REQ/not-asked", *command[1:])
        peer.call("SET", "MUF/FE/REQ/asked", "x", "EX", 10)
        await until_set(store, "MUF/FE/RES/asked")
        assert ran == ["before", "asked"]


# --- 4.1, 6: what can be said of a TTL --------------------------------------------------------------------------------


async def test_each_ttl_can_be_said_at_the_start_and_in_each_call(store: Store, store_servers: StoreServers) -> None:
    from mpreg.apps.muf import Ttls

    async with await Unit.connect("U", store_servers.url, ttls=Ttls(req=20, res=40, keep=50)) as unit:
        await unit.send(b"", id="a")
        await unit.send(b"", id="b", ttl=60)
        await unit.keep("a", b"")
        await unit.keep("b", b"", ttl=70)

        @unit.on_request
        async def answer(request: Request) -> None:
            if request.id == "a":
                await request.reply(b"")
            else:
                await request.fail(b"", ttl=80)

        await unit.ready()
        for id in "ab":
            await store.command("SET", f"MUF/OTHER/REQ/{id}", "x", "EX", 10)
        async with store.keyspace_events("MUF/OTHER/R*", "MUF/OTHER/ERR/*") as events:
            while (
                await store.command("EXISTS", "MUF/OTHER/RES/a") + await store.command("EXISTS", "MUF/OTHER/ERR/b") < 2
            ):
                await anext(events)
    for key, ttl_s in {
        "MUF/U/REQ/a": 20,
        "MUF/U/REQ/b": 60,
        "MUF/U/KEEP/a": 50,
        "MUF/U/KEEP/b": 70,
        "MUF/OTHER/RES/a": 40,
        "MUF/OTHER/ERR/b": 80,
    }.items():
        assert ttl_s - 5 < await store.command("TTL", key) <= ttl_s, key


# --- what the server saw of us ----------------------------------------------------------------------------------------


@asynccontextmanager
async def monitored(servers: StoreServers) -> AsyncIterator[list[list[str]]]:
    """Every command from the moment that this begins to the moment that it ends, without quotes."""
    seen: list[list[str]] = []
    with raw(servers) as monitor, raw(servers) as marker:
        assert monitor.call("MONITOR") == b"OK"
        yield seen
        marker.call("ECHO", "the end")
        while "the end" not in (line := (await asyncio.to_thread(monitor.receive)).decode()):
            if " lua] " not in line:
                seen.append(re.findall(r'"((?:[^"\\]|\\.)*)"', line))


async def test_the_request_is_written_after_the_subscription_and_with_its_expiry(store_servers: StoreServers) -> None:
    async with monitored(store_servers) as seen, await Unit.connect("FE", store_servers.url) as frontend:
        with pytest.raises(MufTimeout):
            await frontend.request(b"hello", id="1", timeout=0.05)
    ours = [command for command in seen if any("MUF/" in word for word in command)]
    subscribed = [command for command in ours if command[0] == "PSUBSCRIBE"]
    assert {word for command in subscribed for word in command[1:]} == {
        "__keyspace@0__:MUF/FE/RES/*",
        "__keyspace@0__:MUF/FE/ERR/*",
    }
    written = ours.index(["SET", "MUF/FE/REQ/1", "hello", "NX", "EX", "10"])
    assert all(ours.index(command) < written for command in subscribed)
    assert {command[0] for command in ours} == {"PSUBSCRIBE", "PUNSUBSCRIBE", "MGET", "GET", "SET"}
    assert ours.index(["MGET", "MUF/FE/RES/1", "MUF/FE/ERR/1"]) > written, "then they are read once (R-M4)"
    assert ["GET", "MUF/FE/ERR/1"] in ours[written:], "and once more before the call gives up"


async def test_a_backend_subscribes_as_the_note_writes_and_deletes_nothing(store_servers: StoreServers) -> None:
    async with (
        monitored(store_servers) as seen,
        await Unit.connect("FE", store_servers.url) as frontend,
        await Unit.connect("BE", store_servers.url) as backend,
    ):
        backend.on_request(group="G")(lambda request: request.raw)
        await backend.ready()
        for n in range(5):
            assert await frontend.request(b"x", id=str(n)) == b"x"
        await frontend.keep("state", b"x")
    ours = [command for command in seen if any("MUF/" in word for word in command)]
    assert ["PSUBSCRIBE", "__keyspace@0__:MUF/*/REQ/*"] in ours
    assert not {"DEL", "UNLINK", "GETDEL", "EXPIREAT", "RENAME"} & {command[0] for command in seen}
    for command in ours:
        if command[0] == "SET":
            assert "EX" in command or "PX" in command, "the expiry is in the same command"
    for n in range(5):
        claim = next(at for at, command in enumerate(ours) if command[:2] == ["SET", f"MUF/G/KEEP/claim.FE.{n}"])
        read = ours.index(["GET", f"MUF/FE/REQ/{n}"])
        assert claim < read, "the claim comes before the request is read (R-M6)"
        assert "NX" in ours[claim]
        assert ["SET", f"MUF/FE/RES/{n}", "x", "EX", "30"] in ours


# --- redis-cli itself -------------------------------------------------------------------------------------------------

CLI = shutil.which("redis-cli")
needs_cli = pytest.mark.skipif(CLI is None, reason="needs redis-cli: install the Debian package redis-tools")


@pytest.fixture(params=["valkey", "redis7", "cluster"])
def node(request: pytest.FixtureRequest) -> Iterator[tuple[str, Server]]:
    """A URL for units, and a server for redis-cli."""
    if request.param == "cluster":
        with cluster(primaries=3, replicas=0) as nodes:
            yield nodes.url, nodes.primaries[0]
    else:
        with (valkey if request.param == "valkey" else redis7)(tcp=True) as server:
            yield server.url, server


def cli(server: Server, *args: str) -> bytes:
    assert CLI is not None
    command = [CLI, "-c", "-p", str(server.port), *args]
    return subprocess.run(command, capture_output=True, check=True, timeout=20).stdout.rstrip(b"\n")


@pytest.mark.slow
@needs_cli
async def test_redis_cli_asks(node: tuple[str, Server]) -> None:
    url, server = node
    async with await Unit.connect("BE", url) as backend, await connect(url) as store:
        backend.on_request(group="G")(lambda request: request.raw.upper())
        await backend.ready()
        for n in range(9):  # in a cluster they are in slots of all three primaries
            key = f"MUF/ME/RES/{n}"
            async with store.keyspace_events(keys=[key]) as events:
                assert await asyncio.to_thread(cli, server, "SET", f"MUF/ME/REQ/{n}", "hello", "EX", "10") == b"OK"
                await anext(events)
            assert await asyncio.to_thread(cli, server, "GET", key) == b"HELLO"
            assert 28 <= int(await asyncio.to_thread(cli, server, "TTL", key)) <= 30


@pytest.mark.slow
@needs_cli
async def test_redis_cli_answers(node: tuple[str, Server], tmp_path: Path) -> None:
    url, server = node
    async with await Unit.connect("FE", url) as frontend, await connect(url) as store:
        for n in range(9):
            key = f"MUF/FE/REQ/{n}"
            async with store.keyspace_events(keys=[key]) as events:
                asking = asyncio.create_task(frontend.request("hello", id=str(n)))
                await anext(events)
            assert await asyncio.to_thread(cli, server, "GET", key) == b"hello"
            assert 8 <= int(await asyncio.to_thread(cli, server, "TTL", key)) <= 10
            await asyncio.to_thread(cli, server, "SET", f"MUF/FE/RES/{n}", f"of {n}", "EX", "30")
            assert await asking == b"of %d" % n
        assert len(await all_keys(store)) == 18

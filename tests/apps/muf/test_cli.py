"""`mpreg muf …` as people run it, with plain commands on the other side."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.apps.muf.peer import err, raw_backend, res, until_set
from tests.store.servers import StoreServers

from mpreg.store import Store

pytestmark = pytest.mark.anyio


async def start(*args: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mpreg", "muf", *args, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )


async def call(url: str, *args: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    process = await start("call", "--store", url, "--unit", "FE", *args)
    out, error = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out, error


@asynccontextmanager
async def serving(url: str, *args: str) -> AsyncIterator[Process]:
    process = await start("serve", "--store", url, "--unit", "BE", *args)
    assert process.stderr is not None
    try:
        assert await process.stderr.readline() == b"BE answers\n"
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 0


async def test_call_prints_the_bytes_of_the_answer(store: Store, store_servers: StoreServers) -> None:
    async with raw_backend(store, lambda key, value: [res(key, b"\xffgot " + value)]):
        assert await call(store_servers.url, "hello") == (0, b"\xffgot hello", b"")
        assert await call(store_servers.url, "-", stdin=b"\x00piped") == (0, b"\xffgot \x00piped", b"")


async def test_call_says_err_on_stderr_and_exits_1(store: Store, store_servers: StoreServers) -> None:
    async with raw_backend(store, lambda key, value: [err(key, b"\xfebroken")]):
        assert await call(store_servers.url, "x") == (1, b"", b"\xfebroken")


async def test_call_exits_2_when_no_answer_comes(store: Store, store_servers: StoreServers) -> None:
    code, out, error = await call(store_servers.url, "--timeout", "0.2", "--ttl", "60", "--id", "mine", "x")
    assert (code, out) == (2, b"")
    assert b"MUF_TIMEOUT" in error
    assert 50 < await store.command("TTL", "MUF/FE/REQ/mine") <= 60


async def test_a_bad_name_is_a_usage_error(store_servers: StoreServers) -> None:
    code, _, error = await call(store_servers.url, "--id", "a/b", "x")
    assert code == 2
    assert b"id" in error


async def test_serve_answers_with_what_a_command_prints(store: Store, store_servers: StoreServers) -> None:
    async with serving(store_servers.url, "--group", "G", "--exec", "tr a-z A-Z"):
        await store.command("SET", "MUF/FE/REQ/1", "shout", "EX", 10)
        assert await until_set(store, "MUF/FE/RES/1") == b"SHOUT"
        assert await store.command("EXISTS", "MUF/G/KEEP/claim.FE.1") == 1


async def test_a_command_that_fails_answers_with_its_stderr(store: Store, store_servers: StoreServers) -> None:
    async with serving(store_servers.url, "--exec", "sh -c 'echo $MUF_UNIT/$MUF_ID: no >&2; exit 3'"):
        await store.command("SET", "MUF/FE/REQ/1", "x", "EX", 10)
        assert await until_set(store, "MUF/FE/ERR/1") == b"FE/1: no\n"
    async with serving(store_servers.url, "--exec", "/no/such/program"):
        await store.command("SET", "MUF/FE/REQ/2", "x", "EX", 10)
        assert await until_set(store, "MUF/FE/ERR/2") == b"/no/such/program: No such file or directory"


async def test_serve_takes_only_what_it_is_told_to(store: Store, store_servers: StoreServers) -> None:
    async with serving(store_servers.url, "--from", "FE", "--target", "UP", "--exec", "cat"):
        await store.command("SET", "MUF/OTHER/REQ/UP.1", "x", "EX", 10)
        await store.command("SET", "MUF/FE/REQ/DOWN.1", "x", "EX", 10)
        await store.command("SET", "MUF/FE/REQ/UP.1", "x", "EX", 10)
        assert await until_set(store, "MUF/FE/RES/UP.1") == b"x"
        assert await store.command("EXISTS", "MUF/OTHER/RES/UP.1") == 0
        assert await store.command("EXISTS", "MUF/FE/RES/DOWN.1") == 0


async def test_ls_shows_requests_and_their_state(store: Store, store_servers: StoreServers) -> None:
    await store.command("SET", "MUF/FE/REQ/waits", "x", "EX", 10)
    await store.command("SET", "MUF/FE/REQ/done", "x", "EX", 10)
    await store.command("SET", "MUF/FE/RES/done", "x", "EX", 10)
    await store.command("SET", "MUF/FE/ERR/failed", "x", "EX", 10)
    await store.command("SET", "MUF/no/good/key", "x", "EX", 10)
    process = await start("ls", "--store", store_servers.url, "--json")
    out, _ = await process.communicate()
    rows = {row["id"]: row for row in map(json.loads, out.splitlines())}
    assert {id: row["state"] for id, row in rows.items()} == {
        "waits": "waiting",
        "done": "answered",
        "failed": "failed",
    }
    assert 0 < rows["waits"]["left_s"] <= 10
    assert rows["failed"]["left_s"] == 0


async def test_watch_prints_the_conversation(store: Store, store_servers: StoreServers) -> None:
    process = await start("watch", "--store", store_servers.url, "--json")
    assert process.stderr is not None
    assert process.stdout is not None
    assert await process.stderr.readline() == b"watching\n"
    await store.command("SET", "MUF/FE/REQ/1", "question", "EX", 10)
    await store.command("SET", "MUF/FE/RES/1", "answer", "EX", 10)
    heard = [json.loads(await process.stdout.readline()) for _ in range(2)]
    assert {(row["status"], row["value"]) for row in heard} == {("REQ", "question"), ("RES", "answer")}
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 130


async def test_doctor_says_what_to_do(store: Store, store_servers: StoreServers) -> None:
    for primary in store_servers.primaries:
        primary.call("CONFIG", "SET", "notify-keyspace-events", "")
    process = await start("doctor", "--store", store_servers.url)
    out, _ = await process.communicate()
    assert process.returncode == 1
    assert b"notify-keyspace-events to K$" in out
    for primary in store_servers.primaries:
        primary.call("CONFIG", "SET", "notify-keyspace-events", "K$")
    process = await start("doctor", "--store", store_servers.url, "--json")
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert all(json.loads(line)["ok"] for line in out.splitlines())


async def test_bench_measures(store_servers: StoreServers) -> None:
    process = await start("bench", "--store", store_servers.url, "--seconds", "0.1", "--json")
    out, _ = await process.communicate()
    assert [json.loads(line)["in_flight"] for line in out.splitlines()] == [1, 64]

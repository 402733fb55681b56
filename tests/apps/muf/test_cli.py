"""`mpreg muf …` as people run it, with plain commands on the other side."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import ANY

import pytest
from tests.apps.muf.peer import all_keys, err, raw_backend, res, until_set
from tests.store.servers import StoreServers, valkey

from mpreg.apps.muf import Unit
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


async def said(*args: str) -> str:
    """What a command that succeeds prints."""
    process = await start(*args)
    out, error = await process.communicate()
    assert process.returncode == 0, error
    return out.decode()


@asynccontextmanager
async def watching(url: str, *args: str) -> AsyncIterator[Process]:
    process = await start("watch", "--store", url, *args)
    assert process.stderr is not None
    try:
        assert await process.stderr.readline() == b"watching\n"
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.communicate()


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


async def test_call_puts_the_target_before_the_id(store: Store, store_servers: StoreServers) -> None:
    async with raw_backend(store, lambda key, value: [res(key, key)]):
        code, out, _ = await call(store_servers.url, "--target", "UP", "x")
        assert code == 0
        assert out.startswith(b"MUF/FE/REQ/UP.")
        assert await call(store_servers.url, "--id", "識別子[1]", "x") == (0, "MUF/FE/REQ/識別子[1]".encode(), b"")


@pytest.mark.parametrize(
    "options",
    [("--id", ""), ("--id", "x" * 600), ("--ttl", "0"), ("--ttl", "nan"), ("--timeout", "-1"), ("--unit", "a b")],
)
async def test_what_cannot_be_is_a_usage_error_and_leaves_no_key(
    store: Store, store_servers: StoreServers, options: tuple[str, str]
) -> None:
    code, out, error = await call(store_servers.url, *options, "x")
    assert (code, out) == (2, b"")
    assert b"Error" in error
    assert options[0].strip("-").encode() in error
    assert not await all_keys(store)


async def test_call_exits_1_when_something_else_is_wrong(store: Store, store_servers: StoreServers) -> None:
    await store.command("SET", "MUF/FE/REQ/used", "x", "EX", 10)
    code, out, error = await call(store_servers.url, "--id", "used", "x")
    assert (code, out) == (1, b"")
    assert b"MUF_ID_IN_USE" in error
    code, out, error = await call("unix:///nowhere.sock", "x")
    assert (code, out) == (1, b"")
    assert b"STORE_UNAVAILABLE" in error or b"STORE_" in error
    assert b"Traceback" not in error


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


async def test_a_command_that_takes_too_long_is_killed(store: Store, store_servers: StoreServers) -> None:
    async with serving(store_servers.url, "--time-limit", "0.2", "--exec", "sleep 60"):
        await store.command("SET", "MUF/FE/REQ/1", "x", "EX", 10)
        assert await until_set(store, "MUF/FE/ERR/1") == b"the command took longer than 0.2 s"


async def test_a_command_need_not_read_what_it_is_asked(store: Store, store_servers: StoreServers) -> None:
    async with serving(store_servers.url, "--exec", "echo hi"):
        await store.command("SET", "MUF/FE/REQ/1", b"x" * 5_000_000, "EX", 10)
        assert await until_set(store, "MUF/FE/RES/1") == b"hi\n"


async def test_serve_ends_after_what_runs_has_finished(
    store: Store, store_servers: StoreServers, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    os.mkfifo(go_on)
    async with serving(store_servers.url, "--group", "G", "--claim", "lease", "--exec", f"cat '{go_on}'") as process:
        await store.command("SET", "MUF/FE/REQ/1", "x", "EX", 10)
        await until_set(store, "MUF/G/KEEP/claim.FE.1")
        writing = await asyncio.to_thread(open, go_on, "wb")  # the command has opened it
        process.send_signal(signal.SIGTERM)
        writing.write(b"finished")
        writing.close()
        assert await until_set(store, "MUF/FE/RES/1") == b"finished"


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


async def test_ls_is_for_people_by_unit_with_ages(store: Store, store_servers: StoreServers) -> None:
    async with await Unit.connect("FE", store) as frontend:
        made = await frontend.send(b"x", ttl=100)
    await store.command("SET", "MUF/A/REQ/mine", "x", "EX", 100)
    await store.command("SET", "MUF/A/REQ/ever", "x")
    await store.command("SET", "MUF/A/ERR/ever", "x")
    out = await said("ls", "--store", store_servers.url)
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "A",
        "ever failed age ? left for ever",
        ANY,
        "FE",
        ANY,
    ]
    assert re.search(r"mine +waiting +age +\? +left +\d\d+\.\d s", out)
    assert re.search(rf"{made} +waiting +age +\d+ s +left +\d\d+\.\d s", out)
    assert "mine" not in await said("ls", "--store", store_servers.url, "--unit", "FE")
    assert await said("ls", "--store", store_servers.url, "--unit", "NOBODY") == "no requests\n"


async def test_ls_shows_no_more_than_its_limit_and_says_so(store: Store, store_servers: StoreServers) -> None:
    for n in range(20):
        await store.command("SET", f"MUF/FE/REQ/{n}", "x", "EX", 10)
    process = await start("ls", "--store", store_servers.url, "--json", "--limit", "5")
    out, error = await process.communicate()
    assert len(out.splitlines()) == 5
    assert b"more than 5" in error
    assert len((await said("ls", "--store", store_servers.url, "--json", "--limit", "20")).splitlines()) == 20


async def test_a_unit_that_cannot_be_is_a_usage_error_of_ls_and_watch(store_servers: StoreServers) -> None:
    for command in ("ls", "watch"):
        process = await start(command, "--store", store_servers.url, "--unit", "a/b")
        _, error = await process.communicate()
        assert process.returncode == 2
        assert b"--unit" in error


async def test_watch_is_for_people_on_one_line_each_whatever_the_bytes(
    store: Store, store_servers: StoreServers
) -> None:
    async with watching(store_servers.url, "--unit", "FE[1]") as process:
        assert process.stdout is not None
        await store.command("SET", "MUF/FE1/REQ/not-mine", "x", "EX", 10)
        await store.command("SET", "MUF/FE[1]/REQ/1", b"\x1b[2J\n\xff" + b"y" * 200, "EX", 10)
        line = (await process.stdout.readline()).decode()
        assert re.fullmatch(r"\d\d:\d\d:\d\d REQ  FE\[1\] 1  \\x1b\[2J\\n\\xffy+…\n", line)


async def test_watch_goes_on_when_its_connection_breaks(store: Store, store_servers: StoreServers) -> None:
    async with watching(store_servers.url, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for primary in store_servers.primaries:
            primary.call("CLIENT", "KILL", "TYPE", "pubsub")
        assert await process.stderr.readline() == b"some events may be missing here\n"
        for n in range(10):  # of a cluster, other servers' connections may still be under way
            await store.command("SET", "MUF/FE/REQ/1", f"{n}", "EX", 10)
        assert json.loads(await process.stdout.readline())["id"] == "1"


async def test_watch_says_when_there_are_no_events_to_be_had() -> None:
    with valkey() as server:
        server.call("ACL", "SETUSER", "weak", "on", ">pw", "~MUF/*", "&*", "+@all", "-config")
        process = await start("watch", "--store", server.url.replace("unix://", "unix://weak:pw@"))
        _, error = await process.communicate()
        assert process.returncode == 1
        assert b"STORE_NO_EVENTS" in error


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


async def test_doctor_tries_what_it_may_not_read() -> None:
    with valkey(options=["--notify-keyspace-events", "K$"]) as server:
        server.call("ACL", "SETUSER", "weak", "on", ">pw", "~MUF/*", "&*", "+@all", "-config")
        server.call("ACL", "SETUSER", "reader", "on", ">pw", "%R~MUF/*", "&*", "+@all")
        url = server.url.replace("unix://", "unix://weak:pw@")
        rows = [json.loads(line) for line in (await said("doctor", "--store", url, "--json")).splitlines()]
        assert {row["check"]: row["ok"] for row in rows} == {
            "server": True,
            "writing": True,
            "key events": True,
            "eviction": True,
        }
        process = await start("doctor", "--store", server.url.replace("unix://", "unix://reader:pw@"))
        out, _ = await process.communicate()
        assert process.returncode == 1
        assert b"BAD  writing" in out
        server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert "noeviction refuses" in await said("doctor", "--store", server.url)


async def test_bench_measures(store_servers: StoreServers) -> None:
    out = await said("bench", "--store", store_servers.url, "--seconds", "0.1", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["in_flight"] for row in rows] == [1, 64]
    assert all(row["per_second"] > 0 and 0 < row["p50_us"] <= row["p99_us"] for row in rows)
    assert "64 in flight" in await said("bench", "--store", store_servers.url, "--seconds", "0.1")

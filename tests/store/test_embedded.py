"""The embedded store, with real servers, real kills and real damage."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.servers import system_redis

from mpreg.errors import StoreError
from mpreg.store import Embedded, Store, StoreLimits, connect, embedded
from mpreg.store.embedded_files import Files, locate

pytestmark = pytest.mark.anyio
QUICK = StoreLimits(backoff_min_s=0.001, backoff_max_s=0.02, down_wait_s=20.0)

OWNER = """
import asyncio, sys
from mpreg.store import Embedded
async def main():
    async with Embedded(sys.argv[1], sys.argv[2]) as server:
        print(server.url, server.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mpreg-t-", dir="/tmp") as made:
        yield Path(made)


class Owner:
    """Another process that owns a data directory."""

    def __init__(self, folder: Path, durability: str = "everysec") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(folder), durability], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url, pid = self.process.stdout.readline().split()
        self.server_pid = int(pid)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self) -> None:
        """As `kill`, and the server has ended too: it does so by itself, a moment later, and writes until then."""
        if self.process.poll() is None:
            self.kill()
        wait_for_end(self.server_pid)

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def wait_for_end(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        assert poll.poll(20_000), f"process {pid} still runs"
    finally:
        os.close(process)


async def config(url: str, name: str) -> str:
    async with await connect(url) as store:
        found = await store.command("CONFIG", "GET", name)
        return str(found[name.encode()].decode())


def tcp_listeners(pid: int) -> list[str]:
    """The listening TCP sockets among a process's open files."""
    inodes = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return [line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in inodes]


def mode(url: str) -> int:
    return Path(url.removeprefix("unix://")).stat().st_mode & 0o777


def socket_exists(url: str) -> bool:
    return Path(url.removeprefix("unix://")).exists()


async def test_it_listens_on_a_private_unix_socket_and_on_no_port(folder: Path) -> None:
    async with Embedded(folder) as server:
        assert mode(server.url) == 0o700
        assert server.pid is not None
        assert tcp_listeners(server.pid) == []


async def test_what_was_stored_is_there_after_a_stop_and_a_start(folder: Path) -> None:
    server = Embedded(folder)
    await server.stop()
    for n in range(3):
        async with server, await connect(server.url) as store:
            assert await store.command("INCR", "starts") == n + 1
        assert server.pid is None
        assert not socket_exists(server.url)
    await server.stop()


@pytest.mark.parametrize(
    ("durability", "appendonly", "appendfsync"),
    [("memory", "no", "everysec"), ("everysec", "yes", "everysec"), ("always", "yes", "always")],
)
async def test_durability_by_name(folder: Path, durability: str, appendonly: str, appendfsync: str) -> None:
    async with Embedded(folder, durability) as server:
        assert await config(server.url, "appendonly") == appendonly
        assert await config(server.url, "appendfsync") == appendfsync
        assert await config(server.url, "maxmemory-policy") == "noeviction"


async def test_a_path_that_is_too_long_for_a_socket_works(folder: Path) -> None:
    deep = folder / ("d" * 120) / "鍵" / ("e" * 120)
    async with Embedded(deep) as server, await connect(server.url) as store:
        await store.command("SET", "key", "value")
        assert len(os.fsencode(server.url.removeprefix("unix://"))) < 104
        assert locate(deep) == server.url
    runtime = Path(server.url.removeprefix("unix://")).parent
    assert list(runtime.iterdir()) == []
    runtime.rmdir()
    assert (deep / "store" / "data" / "appendonlydir").is_dir()


async def test_a_second_owner_is_told_who_the_first_one_is(folder: Path) -> None:
    with Owner(folder) as first:
        with pytest.raises(StoreError) as in_use:
            await Embedded(folder).start()
        assert in_use.value.code == "STORE_DATA_DIR_IN_USE"
        assert str(first.process.pid) in str(in_use.value)
        assert socket.gethostname() in str(in_use.value)
        assert in_use.value.details["url"] == first.url == locate(folder)
        async with await connect(first.url) as store:
            assert await store.command("PING") == b"PONG"


async def test_the_server_ends_with_an_owner_that_is_killed_and_the_next_owner_finds_all(folder: Path) -> None:
    with Owner(folder) as first:
        async with await connect(first.url) as store:
            await asyncio.gather(*[store.send("SET", n, n) for n in range(1000)])
        first.kill()
        async with Embedded(folder) as server, await connect(server.url) as store:
            assert await store.command("DBSIZE") == 1000
        wait_for_end(first.server_pid)
    assert locate(folder) is None


async def test_a_server_that_is_killed_is_started_again_with_its_data(folder: Path) -> None:
    async with Embedded(folder, "always") as server, await connect(server.url, limits=QUICK) as store:
        for n in range(3):
            assert await store.command("INCR", "n") == n + 1
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            while server.restarts == n:
                await asyncio.sleep(0)
        assert await store.command("GET", "n") == b"3"


async def test_a_server_that_dies_again_and_again_is_left_dead_and_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr(embedded, "BACKOFF_MAX_S", 0.001)
    async with Embedded(folder) as server:
        manifest = next((folder / "store" / "data" / "appendonlydir").glob("*.manifest"))
        manifest.write_text("nonsense\n")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(StoreError) as dead:
            await server.wait()
        assert dead.value.code == "STORE_DATA_CORRUPT"
        assert "nothing was deleted" in str(dead.value)


async def make_data(folder: Path, keys: int = 100) -> Path:
    async with Embedded(folder, "always") as server, await connect(server.url) as store:
        await asyncio.gather(*[store.send("SET", f"key:{n}", n) for n in range(keys)])
    return folder / "store" / "data"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


async def refused(folder: Path, durability: str = "always", binary: str | None = None) -> StoreError:
    data = folder / "store" / "data"
    before = contents(data)
    with pytest.raises(StoreError) as error:
        await Embedded(folder, durability, binary=binary).start()
    assert contents(data) == before, "data was changed"
    return error.value


async def test_a_damaged_file_is_named_and_left_as_it_is(folder: Path) -> None:
    data = await make_data(folder)
    (log,) = (data / "appendonlydir").glob("*.incr.aof")
    text = bytearray(log.read_bytes())
    text[len(text) // 2 : len(text) // 2 + 4] = b"\xff\xff\xff\xff"
    log.write_bytes(text)
    error = await refused(folder)
    assert error.code == "STORE_DATA_CORRUPT"
    assert "valkey-check-aof" in str(error)


async def test_a_manifest_that_is_missing_is_no_reason_to_start_anew(folder: Path) -> None:
    data = await make_data(folder)
    next((data / "appendonlydir").glob("*.manifest")).unlink()
    assert (await refused(folder)).code == "STORE_DATA_CORRUPT"


async def test_the_cut_off_tail_of_a_write_is_dropped(folder: Path) -> None:
    data = await make_data(folder)
    (log,) = (data / "appendonlydir").glob("*.incr.aof")
    log.write_bytes(log.read_bytes()[:-3])
    async with Embedded(folder, "always") as server, await connect(server.url) as store:
        assert await store.command("DBSIZE") == 99


async def test_data_of_a_newer_version_is_named(folder: Path) -> None:
    data = await make_data(folder)
    (base,) = (data / "appendonlydir").glob("*.base.rdb")
    text = base.read_bytes()
    base.write_bytes(text[:6] + b"999" + text[9:])
    error = await refused(folder)
    assert error.code == "STORE_DATA_VERSION"
    assert error.details["written_by"].startswith("valkey ")


@pytest.mark.slow
async def test_an_older_server_s_data_is_read_by_a_newer_one_and_not_the_other_way_round(folder: Path) -> None:
    older = system_redis()
    async with Embedded(folder, "always", binary=older) as server, await connect(server.url) as store:
        assert store.server.name == "redis"
        await asyncio.gather(*[store.send("HSET", f"key:{n}", "field", n) for n in range(100)])
    async with Embedded(folder, "always") as server, await connect(server.url) as store:
        assert store.server.name == "valkey"
        assert await store.command("DBSIZE") == 100
        await store.command("BGREWRITEAOF")  # from here on it is all in the newer format
        base = folder / "store" / "data" / "appendonlydir"
        while not [path for path in base.glob("*.base.rdb") if b"valkey-ver" in path.read_bytes()]:
            await asyncio.sleep(0.01)
    error = await refused(folder, binary=older)
    assert error.code == "STORE_DATA_VERSION"
    assert error.details["written_by"].startswith("valkey ")
    assert error.details["server"].startswith("redis 7.")


async def test_memory_does_not_run_over_data_that_it_would_not_read(folder: Path) -> None:
    await make_data(folder)
    assert (await refused(folder, "memory")).code == "STORE_DATA_DURABILITY"


async def test_a_snapshot_that_would_not_be_read_is_refused(folder: Path) -> None:
    async with Embedded(folder, "memory") as server, await connect(server.url) as store:
        await store.command("SET", "key", 1)
        await store.command("SAVE")
    assert (await refused(folder, "everysec")).code == "STORE_DATA_DURABILITY"


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]).returncode:
        pytest.skip("only root may make a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


async def push_until_refused(store: Store) -> tuple[int, StoreError]:
    for done in range(1000):
        try:
            await store.command("RPUSH", "list", "x" * 10_000)
        except StoreError as full:
            return done, full
    raise AssertionError("the disk is not full")


async def test_a_disk_that_fills_up_loses_nothing_that_was_acknowledged(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Embedded(small_disk, "always") as server, await connect(server.url, limits=QUICK) as store:
        done, full = await push_until_refused(store)
        assert full.code == "STORE_CONNECTION_LOST"  # with `always` the server rather ends than forget a write
        assert await store.command("LLEN", "list") in (done, done + 1)
        assert "STORE_DISK_FULL" in caplog.text
        await asyncio.to_thread(enlarge, small_disk)
        assert await store.command("RPUSH", "list", "x" * 10_000) in (done + 1, done + 2)
    async with Embedded(small_disk, "always") as server, await connect(server.url) as store:
        assert await store.command("LLEN", "list") in (done + 1, done + 2)


async def test_on_a_full_disk_writes_are_refused_until_there_is_room(small_disk: Path) -> None:
    async with Embedded(small_disk, "everysec") as server, await connect(server.url) as store:
        done, full = await push_until_refused(store)
        assert full.code == "STORE_CANNOT_PERSIST"
        assert full.retryable
        assert await store.command("LLEN", "list") == done
        await asyncio.to_thread(enlarge, small_disk)
        while True:  # the server tries again every second
            try:
                await store.command("RPUSH", "list", "after")
                break
            except StoreError:
                await asyncio.sleep(0.02)
        assert server.restarts == 0


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)


async def test_a_start_on_a_full_disk_says_so(small_disk: Path) -> None:
    with pytest.raises(OSError, match="space"):
        fill(small_disk / "filler")
    with pytest.raises(StoreError) as full:
        await Embedded(small_disk).start()
    assert full.value.code == "STORE_DISK_FULL"


async def test_a_directory_that_can_not_be_used_is_named(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(StoreError) as unusable:
        await Embedded(folder / "file").start()
    assert unusable.value.code == "STORE_DATA_DIR"
    assert str(folder / "file") in str(unusable.value)


@pytest.mark.parametrize("options", [{"durability": "sometimes"}, {"maxmemory_bytes": 0}])
def test_options_out_of_range_are_named(folder: Path, options: dict[str, object]) -> None:
    with pytest.raises(StoreError) as invalid:
        Embedded(folder, **options)  # type: ignore[arg-type]
    assert invalid.value.details["option"] == next(iter(options))


def fake_server(folder: Path, says: str) -> Path:
    path = folder / "server"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("echo 'Redis server v=6.2.14 sha=00000000:0'", "STORE_UNSUPPORTED_VERSION"),
        ("echo 'Valkey server v=7.1.0 sha=00000000:0'", "STORE_UNSUPPORTED_VERSION"),
        ("echo hello", "STORE_NO_SERVER"),
        ("case $1 in --version) echo 'Valkey server v=9.0.0 sha=0:0';; *) exit 3;; esac", "STORE_SERVER_FAILED"),
    ],
)
async def test_a_server_that_is_too_old_or_none_or_fails(folder: Path, says: str, code: str) -> None:
    with pytest.raises(StoreError) as unusable:
        await Embedded(folder / "data", binary=fake_server(folder, says)).start()
    assert unusable.value.code == code


async def test_a_server_that_was_named_and_is_not_there_is_not_replaced_by_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPREG_VALKEY_SERVER", "/nowhere/valkey-server")
    with pytest.raises(StoreError) as missing:
        await Embedded(folder).start()
    assert missing.value.code == "STORE_NO_SERVER"
    assert "/nowhere/valkey-server" in str(missing.value)


async def test_a_full_store_refuses_writes_and_evicts_nothing(folder: Path) -> None:
    async with Embedded(folder, "memory", maxmemory_bytes=4_000_000) as server, await connect(server.url) as store:
        results = await asyncio.gather(
            *[store.send("SET", n, "x" * 100_000) for n in range(60)], return_exceptions=True
        )
        kept = results.index(next(result for result in results if isinstance(result, StoreError)))
        assert {result.code for result in results[kept:] if isinstance(result, StoreError)} == {"STORE_OUT_OF_MEMORY"}
        assert await store.command("DBSIZE") == kept > 5


def test_nobody_is_located_where_nobody_runs(folder: Path) -> None:
    assert locate(folder) is None
    Files(folder).make()
    (folder / "store" / "owner.lock").write_text('{"pid": 1, "host": "h", "url": "unix:///nowhere"}')
    assert locate(folder) is None

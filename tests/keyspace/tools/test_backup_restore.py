"""What is backed up and purged comes back as it was, and a backup that is not whole writes nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from pathlib import Path

import pytest
from tests.keyspace.tools.sample import CATALOG, ODD_KEYS, content, contents, fill, payloads
from tests.store.servers import StoreServers, redis7, valkey

from mpreg.errors import KeyspaceError, StoreError
from mpreg.keyspace.tools import record_read
from mpreg.keyspace.tools.backup import BackedUp, backup
from mpreg.keyspace.tools.backup_file import opened, written
from mpreg.keyspace.tools.record_file import Entry, Header, Sealer, entry
from mpreg.keyspace.tools.record_read import Fresh
from mpreg.keyspace.tools.restore import OnExisting, Restored, restore, verify
from mpreg.keyspace.tools.restore_state import state_path
from mpreg.keyspace.tools.selection import select
from mpreg.store import Store, StoreLimits, connect

pytestmark = pytest.mark.anyio


async def save(store: Store, path: Path, match: bytes = b"*", families: tuple[str, ...] = ()) -> BackedUp:
    chosen = select(CATALOG, match if not families else None, families)
    with written(str(path), replace=True) as sink:
        return await backup(store, sink, chosen.match, accepts=chosen.accepts, families=chosen.families)


async def load(store: Store, path: Path, on_existing: OnExisting = "fail", *, resume: bool = False) -> Restored:
    with opened(str(path)) as file:
        verified = await verify(file)
        return await restore(store, file, verified, on_existing=on_existing, resume=resume, state_of=str(path))


async def delete(store: Store, match: str = "*") -> None:
    async for page in store.scan(match):
        for key in page:
            await store.command("UNLINK", key)


def entries(path: Path) -> dict[bytes, Entry]:
    with opened(str(path)) as file:
        return {line.name: line for line in file.lines() if isinstance(line, Entry)}


def reseal(path: Path, records: list[Entry]) -> None:
    sealer = Sealer()
    lines = [sealer.header(Header(server="valkey 9.1.2", rdb_version=records[0].rdb_version, started="now"))]
    lines += [sealer.entry(record) for record in records]
    path.write_bytes(b"".join([*lines, sealer.footer(0, "then")]))


@pytest.mark.parametrize("name", ["b.jsonl", "b.jsonl.gz"])
async def test_backup_and_restore_give_back_what_was_there(store: Store, tmp_path: Path, name: str) -> None:
    await fill(store)
    before, dumps = await contents(store), await payloads(store)
    assert len(dumps) >= len(before) - 2
    done = await save(store, tmp_path / name)
    assert (done.keys, done.gone) == (len(before), 0)
    await delete(store)
    restored = await load(store, tmp_path / name)
    assert restored == Restored(keys=len(before), restored=len(before), same=0, existing=0, expired=0, resumed_at=0)
    assert await contents(store) == before
    assert await payloads(store) == dumps
    assert not state_path(str(tmp_path / name)).exists(), "no state is left of a restore that is done"


async def test_a_backup_takes_only_what_matches(store: Store, tmp_path: Path) -> None:
    await fill(store)
    await save(store, tmp_path / "b", b"app:temp:*")
    assert set(entries(tmp_path / "b")) == set(ODD_KEYS)


async def test_a_backup_takes_only_the_families_asked_for(store: Store, tmp_path: Path) -> None:
    await fill(store)
    await save(store, tmp_path / "b", families=("job", "queue"))
    assert set(entries(tmp_path / "b")) == {b"app:job:1", b"app:job:2", b"app:queue:a"}
    with opened(str(tmp_path / "b")) as file:
        header = next(iter(file.lines()))
    assert isinstance(header, Header)
    assert header.families == ["app/job", "app/queue"]


async def test_an_empty_backup_is_a_backup(store: Store, tmp_path: Path) -> None:
    assert (await save(store, tmp_path / "b")).keys == 0
    assert (await load(store, tmp_path / "b")).keys == 0


async def test_keys_that_vanish_meanwhile_are_counted(store: Store, tmp_path: Path) -> None:
    """Listed, then deleted before they are read: an `accepts` that deletes stands between the two."""
    for n in range(10):
        await store.command("SET", f"app:temp:{n}", "x")

    def accepts(key: bytes) -> bool:
        if key.endswith((b"3", b"7")):
            store.send("UNLINK", key)
        return True

    with written(str(tmp_path / "b")) as sink:
        done = await backup(store, sink, accepts=accepts)
    assert (done.keys, done.gone) == (8, 2)
    with opened(str(tmp_path / "b")) as file:
        assert (await verify(file)).footer.gone == 2


async def test_a_key_that_has_expired_meanwhile_is_skipped_and_counted(store: Store, tmp_path: Path) -> None:
    await store.command("SET", "app:temp:long", "x", "PX", 100_000)
    await save(store, tmp_path / "b")
    alive = entries(tmp_path / "b")[b"app:temp:long"]
    now_s, _ = await store.primaries()[0].command("TIME")
    expired = entry(b"app:temp:short", "string", int(now_s) * 1000, alive.dump)
    reseal(tmp_path / "b", [expired, alive])
    await delete(store)
    done = await load(store, tmp_path / "b")
    assert (done.restored, done.expired) == (1, 1)
    assert await store.command("EXISTS", "app:temp:short") == 0
    await store.command("SET", "app:temp:short", "newer")
    done = await load(store, tmp_path / "b", "replace")
    assert (done.same, done.expired) == (1, 1)
    assert await store.command("GET", "app:temp:short") == b"newer", "what has expired replaces nothing"


@pytest.mark.parametrize(("mode", "value"), [("skip", b"mine"), ("replace", b"theirs")])
async def test_keys_that_exist_are_left_or_replaced(
    store: Store, tmp_path: Path, mode: OnExisting, value: bytes
) -> None:
    await store.command("SET", "app:temp:a", "theirs")
    await store.command("SET", "app:temp:b", "theirs")
    await store.command("SET", "app:temp:c", "theirs")
    await save(store, tmp_path / "b")
    await store.command("SET", "app:temp:a", "mine")
    await store.command("UNLINK", "app:temp:b")
    done = await load(store, tmp_path / "b", mode)
    assert await store.command("GET", "app:temp:a") == value
    assert await store.command("GET", "app:temp:b") == b"theirs"
    expected = (1, 1, 1) if mode == "skip" else (2, 0, 1)
    assert (done.restored, done.existing, done.same) == expected


async def test_another_expiry_makes_another_key(store: Store, tmp_path: Path) -> None:
    await store.command("SET", "app:temp:a", "x", "PX", 100_000)
    before = await contents(store)
    await save(store, tmp_path / "b")
    await store.command("PERSIST", "app:temp:a")
    assert (await load(store, tmp_path / "b", "skip")).existing == 1
    assert (await load(store, tmp_path / "b", "replace")).restored == 1
    assert await contents(store) == before
    assert (await load(store, tmp_path / "b", "skip")).same == 1


async def test_fail_finds_the_last_key_before_the_first_is_written(store: Store, tmp_path: Path) -> None:
    for n in range(1_200):
        store.send("SET", f"app:temp:{n}", "x")
    await save(store, tmp_path / "b")
    last = list(entries(tmp_path / "b"))[-1]
    await delete(store)
    await store.command("SET", last, "mine")
    with pytest.raises(KeyspaceError) as caught:
        await load(store, tmp_path / "b")
    assert caught.value.code == "KEYSPACE_RESTORE_EXISTS"
    assert caught.value.details["existing"] == 1
    assert last.decode() in str(caught.value)
    assert await contents(store) == {last: ("string", -1, b"mine")}


@pytest.mark.parametrize("damage", ["cut", "edited", "footer", "gz"])
async def test_a_damaged_backup_writes_nothing_and_names_the_line(store: Store, tmp_path: Path, damage: str) -> None:
    await fill(store)
    path = tmp_path / "b.jsonl"
    await save(store, path)
    await delete(store)
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    if damage == "cut":
        data, line = data[:-200], None
    elif damage == "edited":
        lines[4] = lines[4].replace(b'"expires_at_ms":', b'"expires_at_ms": ')
        data, line = b"".join(lines), 5
    elif damage == "footer":
        data, line = b"".join(lines[:-1]), len(lines)
    else:
        data, line = gzip.compress(data)[:-20], None
    path.write_bytes(data)
    with pytest.raises(KeyspaceError, match="line") as caught:
        await load(store, path, "replace")
    assert caught.value.code == "KEYSPACE_BACKUP_CORRUPT"
    assert line is None or caught.value.details["line"] == line
    assert await contents(store) == {}


async def test_one_record_at_a_time_is_read_whole(store: Store, tmp_path: Path) -> None:
    """A key that is rewritten all the time: type, expiry and value in the backup are always of one write."""
    stop = False

    async def rewrite() -> None:
        n = 0
        while not stop:
            n += 1
            await store.command("SET", "app:temp:a", f"value {n}", "PXAT", 4_000_000_000_000 + n)

    writer = asyncio.create_task(rewrite())
    try:
        for _ in range(40):
            await save(store, tmp_path / "b", b"app:temp:*")
            for record in entries(tmp_path / "b").values():
                assert record.expires_at_ms is not None
                n = record.expires_at_ms - 4_000_000_000_000
                assert f"value {n}".encode() in record.dump
    finally:
        stop = True
        await writer


async def test_a_value_too_large_for_a_page_is_fetched_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_read, "SMALL_BYTES", 200)
    await fill(store)
    before = await contents(store)
    assert (await save(store, tmp_path / "b")).keys == len(before)
    await delete(store)
    await load(store, tmp_path / "b")
    assert await contents(store) == before


async def test_a_server_that_cannot_read_the_payload_says_so_and_nothing_is_written(tmp_path: Path) -> None:
    with valkey() as new, redis7() as old:
        async with await connect(new.url) as store:
            await fill(store)
            await save(store, tmp_path / "b")
        async with await connect(old.url) as store:
            with pytest.raises(KeyspaceError) as caught:
                await load(store, tmp_path / "b")
            assert await store.command("DBSIZE") == 0
        assert caught.value.code == "KEYSPACE_BACKUP_VERSION"
        assert "redis 7" in str(caught.value)
        assert "valkey 9" in str(caught.value)
        assert "payload version 80" in str(caught.value)


async def test_an_older_server_s_backup_is_read_by_a_newer_one(tmp_path: Path) -> None:
    with valkey() as new, redis7() as old:
        async with await connect(old.url) as store:
            await fill(store)
            before = await contents(store)
            await save(store, tmp_path / "b")
        async with await connect(new.url) as store:
            await load(store, tmp_path / "b")
            assert await contents(store) == before


async def test_a_server_without_pexpiretime_is_backed_up_to_the_millisecond_or_so(tmp_path: Path) -> None:
    with valkey(options=["--rename-command", "PEXPIRETIME", ""]) as server:
        async with await connect(server.url) as store:
            await store.command("SET", "app:temp:a", "x", "PXAT", 4_000_000_000_000)
            await store.command("SET", "app:temp:b", "x")
            await save(store, tmp_path / "b")
            found = entries(tmp_path / "b")
            assert abs((found[b"app:temp:a"].expires_at_ms or 0) - 4_000_000_000_000) <= 2
            assert found[b"app:temp:b"].expires_at_ms is None
            again = await load(store, tmp_path / "b", "skip")
            assert (again.same, again.existing) == (1, 1), "an expiry that can't be compared may be another one"
            await delete(store)
            assert (await load(store, tmp_path / "b")).restored == 2


async def test_a_server_that_is_killed_and_comes_back_is_backed_up_to_the_end(tmp_path: Path) -> None:
    with valkey(durability="always") as server:
        async with await connect(server.url) as store:
            await asyncio.gather(*(store.command("SET", f"app:temp:{n}", "x") for n in range(2_000)))
            before = await contents(store)
            listed: list[bytes] = []

            def accepts(key: bytes) -> bool:
                listed.append(key)
                if len(listed) == 1_200:
                    server.kill()
                    server.start()
                return True

            with written(str(tmp_path / "b")) as sink:
                done = await backup(store, sink, accepts=accepts)
        assert (done.keys, done.gone) == (2_000, 0)
        assert set(entries(tmp_path / "b")) == set(before)


async def test_a_server_that_stays_away_leaves_no_backup(tmp_path: Path) -> None:
    with valkey() as server:
        limits = StoreLimits(down_wait_s=0.2)
        async with await connect(server.url, limits=limits) as store:
            await asyncio.gather(*(store.command("SET", f"app:temp:{n}", "x") for n in range(2_000)))

            def accepts(key: bytes) -> bool:
                if server.running:
                    server.kill()
                return True

            with pytest.raises(StoreError) as caught, written(str(tmp_path / "b")) as sink:
                await backup(store, sink, accepts=accepts)
        assert caught.value.code in ("STORE_UNAVAILABLE", "STORE_CONNECTION_LOST")
        assert os.listdir(tmp_path) == []


async def test_a_full_server_refuses_before_anything_is_written(tmp_path: Path) -> None:
    with valkey() as server:
        async with await connect(server.url) as store:
            await fill(store)
            await save(store, tmp_path / "b")
            await delete(store)
            server.call("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(Exception, match="maxmemory") as caught:
                await load(store, tmp_path / "b")
            assert getattr(caught.value, "code", "") == "STORE_OUT_OF_MEMORY"
            assert await store.command("DBSIZE") == 0


async def test_a_restore_that_fails_midway_says_how_far_it_came_and_goes_on(tmp_path: Path) -> None:
    with valkey() as server:
        async with await connect(server.url) as store:
            for n in range(3_000):
                store.send("SET", f"app:temp:{n}", "x" * 1_000)
            before = await contents(store)
            await save(store, tmp_path / "b")
            await delete(store)
            used = int(server.info("memory")["used_memory"])
            server.call("CONFIG", "SET", "maxmemory", str(used + 1_500_000))
            with pytest.raises(KeyspaceError) as caught:
                await load(store, tmp_path / "b")
            assert caught.value.code == "KEYSPACE_RESTORE_FAILED"
            assert caught.value.state_changed is True
            assert caught.value.retryable
            done = caught.value.details["done"]
            assert 0 < done < 3_000
            assert state_path(str(tmp_path / "b")).exists()
            server.call("CONFIG", "SET", "maxmemory", "0")
            finished = await load(store, tmp_path / "b", resume=True)
            assert finished.resumed_at == done
            assert await contents(store) == before
            assert not state_path(str(tmp_path / "b")).exists()


async def test_a_resumed_restore_does_not_repeat_what_was_done(store: Store, tmp_path: Path) -> None:
    for n in range(1_000):
        store.send("SET", f"app:temp:{n}", "x")
    await save(store, tmp_path / "b")
    keys = list(entries(tmp_path / "b"))
    with opened(str(tmp_path / "b")) as file:
        sha256 = (await verify(file)).footer.sha256
    identity = {"backup": sha256, "store": str(store.url), "on_existing": "replace"}
    state = state_path(str(tmp_path / "b"))
    state.write_bytes(json.dumps(identity).encode() + b"\nstarted 500\ndone 500\nstarted 1000\ndone 10")
    for key in keys:
        await store.command("SET", key, "written since")
    done = await load(store, tmp_path / "b", "replace", resume=True)
    assert (done.resumed_at, done.restored) == (500, 500)
    assert (await content(store, keys[499]))[2] == b"written since"
    assert (await content(store, keys[500]))[2] == b"x"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (None, "no interrupted restore"),
        (b"", "can't be read"),
        (b"nonsense\n", "can't be read"),
        (b'{"backup":"other","store":"","on_existing":"fail"}\n', "another restore: backup"),
    ],
)
async def test_what_can_not_be_resumed_says_why(store: Store, tmp_path: Path, state: bytes | None, why: str) -> None:
    await store.command("SET", "app:temp:a", "x")
    await save(store, tmp_path / "b")
    if state is not None:
        state_path(str(tmp_path / "b")).write_bytes(state)
    with pytest.raises(KeyspaceError, match=why) as caught:
        await load(store, tmp_path / "b", resume=True)
    assert caught.value.code == "KEYSPACE_INVALID_QUERY"


async def test_commands_are_few_kinds_and_none_is_unbounded(tmp_path: Path) -> None:
    with valkey() as server:
        async with await connect(server.url) as store:
            await fill(store)
            server.call("CONFIG", "RESETSTAT")
            await save(store, tmp_path / "b")
            await load(store, tmp_path / "b", "replace")
        used = {name.removeprefix("cmdstat_").partition("|")[0] for name in server.info("commandstats")}
        assert "scan" in used
        assert not used & {"keys", "flushall", "flushdb", "del"}


def test_a_key_that_is_listed_again_comes_once() -> None:
    fresh = Fresh(keys_max=8)
    keys = [b"%d" % n for n in range(4)]
    assert fresh.only(keys) == keys
    assert fresh.only(keys) == []
    assert fresh.only([*keys[2:], b"new"]) == [b"new"]
    for n in range(100, 200):
        fresh.only([b"%d" % n])
    assert fresh.only(keys[:1]) == keys[:1], "what lies far back is forgotten, so its memory is bounded"


def test_servers_of_the_fixture_are_empty(store_servers: StoreServers) -> None:
    assert all(server.call("DBSIZE") == 0 for server in store_servers.primaries)

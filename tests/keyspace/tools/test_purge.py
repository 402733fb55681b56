"""A purge deletes what was chosen, nothing that changed since, and leaves a way back."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.keyspace.tools.sample import CATALOG, ODD_KEYS, contents, fill, payloads
from tests.store.servers import valkey

from mpreg.errors import KeyspaceError
from mpreg.keyspace.catalog import Catalog
from mpreg.keyspace.codec import text
from mpreg.keyspace.keyspace import Keyspace
from mpreg.keyspace.tools.backup_file import opened
from mpreg.keyspace.tools.conditions import parse
from mpreg.keyspace.tools.purge import Order, Plan, Purged, plan, purge, refuse_too_many
from mpreg.keyspace.tools.record_file import Entry
from mpreg.keyspace.tools.restore import restore, verify
from mpreg.keyspace.tools.selection import UNDECLARED, select
from mpreg.store import Store, connect

pytestmark = pytest.mark.anyio


def order(match: bytes | None = b"app:*", *families: str, where: tuple[str, ...] = (), **more: Any) -> Order:
    conditions = tuple(condition for text in where for condition in parse(text))
    return Order(selection=select(CATALOG, match, families), conditions=conditions, **more)


async def run(store: Store, ordered: Order, undo: Path | None) -> tuple[Plan, Purged]:
    planned, keys = await plan(store, ordered)
    refuse_too_many(planned, ordered)
    return planned, await purge(store, ordered, keys, undo=str(undo) if undo is not None else None)


async def bring_back(store: Store, undo: Path) -> int:
    with opened(str(undo)) as file:
        return (await restore(store, file, await verify(file), on_existing="skip")).restored


def saved(undo: Path) -> set[bytes]:
    with opened(str(undo)) as file:
        return {line.name for line in file.lines() if isinstance(line, Entry)}


async def test_purge_and_undo_leave_all_as_it_was(store: Store, tmp_path: Path) -> None:
    await fill(store)
    before, dumps = await contents(store), await payloads(store)
    all_of = order(include_protected=frozenset({"app/active", "app/lock"}))
    planned, purged = await run(store, all_of, tmp_path / "undo")
    assert purged == Purged(deleted=len(before) - 1, gone=0, changed=0)
    assert planned.chosen == planned.matched == purged.deleted
    assert await contents(store) == {b"other:1": before[b"other:1"]}
    assert await bring_back(store, tmp_path / "undo") == purged.deleted
    assert await contents(store) == before
    assert await payloads(store) == dumps


async def test_a_plan_changes_nothing_and_says_what_would_go(store: Store) -> None:
    await fill(store)
    before = await contents(store)
    planned, keys = await plan(store, order())
    assert await contents(store) == before
    assert planned.families == {
        "app/job": 2,
        "app/queue": 1,
        "app/session": 4,
        "app/temp": len(ODD_KEYS),
        UNDECLARED: 3,
    }
    assert planned.protected == {"app/active": 1}
    assert planned.matched == planned.chosen + 1 == len(before) - 1
    assert len(keys) == planned.chosen
    assert planned.size_bytes > 300_000


async def test_locks_and_state_are_left_alone_unless_their_family_is_named(store: Store, tmp_path: Path) -> None:
    await store.command("SET", "app:lock:a", "me", "EX", 100)
    await store.command("SADD", "app:active", "a")
    assert (await run(store, order(), None))[1].deleted == 0
    assert (await run(store, order(None, "lock"), None))[1].deleted == 0
    allowed = order(include_protected=frozenset({"app/lock"}))
    assert (await run(store, allowed, tmp_path / "undo"))[1].deleted == 1
    assert set(await contents(store)) == {b"app:active"}


async def test_only_keys_of_the_family_go_though_the_glob_finds_more(store: Store) -> None:
    await store.command("HSET", "app:job:1", "state", "open")
    await store.command("SET", "app:job:one", "no number, so no job")
    assert (await run(store, order(None, "job"), None))[1].deleted == 1
    assert set(await contents(store)) == {b"app:job:one"}


@pytest.mark.parametrize("match", [b"*", b"", b"*temp*", b"app*"])
async def test_a_pattern_that_reaches_too_far_is_refused_here_too(store: Store, match: bytes) -> None:
    await store.command("SET", "app:temp:a", "x")
    with pytest.raises(KeyspaceError) as caught:
        await run(store, order(match), None)
    assert caught.value.code == "KEYSPACE_PURGE_REFUSED"
    assert await store.command("EXISTS", "app:temp:a") == 1


async def test_families_without_a_common_root_go_together(store: Store) -> None:
    """What covers both is `*`, but only keys that fit one of the patterns are meant."""
    plain = Keyspace("plain")
    plain.string("issue_lock_{issue:int}", text, name="lock", ttl=600)
    plain.string("review_delay_{issue:int}", text, name="delay", ttl=600)
    plain.string("{owner}_{issue:int}_all", text, name="rootless", ttl=600)
    for key in ("issue_lock_1", "review_delay_1", "other_1", "issue_lock_x", "me_1_all"):
        await store.command("SET", key, "x")
    chosen = select(Catalog([plain]), None, ("lock", "delay"))
    assert (await run(store, Order(selection=chosen), None))[1].deleted == 2
    assert set(await contents(store)) == {b"other_1", b"issue_lock_x", b"me_1_all"}
    with pytest.raises(KeyspaceError, match="every root"):
        await plan(store, Order(selection=select(Catalog([plain]), None, ("lock", "rootless"))))


async def test_more_than_the_limit_is_refused_whole(store: Store) -> None:
    await fill(store)
    before = await contents(store)
    with pytest.raises(KeyspaceError) as caught:
        await run(store, order(b"app:temp:*", keys_max=len(ODD_KEYS) - 1), None)
    assert caught.value.code == "KEYSPACE_PURGE_REFUSED"
    assert caught.value.details == {"chosen": len(ODD_KEYS), "limit": len(ODD_KEYS) - 1}
    assert await contents(store) == before
    assert (await run(store, order(b"app:temp:*", keys_max=len(ODD_KEYS)), None))[1].deleted == len(ODD_KEYS)


async def _anew(store: Store) -> None:
    await store.command("UNLINK", "app:temp:a")
    await store.command("HSET", "app:temp:a", "another", "type")


RENEWALS: dict[str, Callable[[Store], Any]] = {
    "its TTL was renewed": lambda store: store.command("PEXPIRE", "app:temp:a", 200_000),
    "it lost its TTL": lambda store: store.command("PERSIST", "app:temp:a"),
    "it was written with the same TTL": lambda store: store.command("SET", "app:temp:a", "new", "KEEPTTL"),
    "one byte was changed": lambda store: store.command("SETRANGE", "app:temp:a", 2, "X"),
    "it was deleted and made anew": _anew,
}


@pytest.mark.parametrize("how", RENEWALS)
@pytest.mark.parametrize("with_undo", [True, False])
async def test_a_key_renewed_between_choosing_and_deleting_survives(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, with_undo: bool
) -> None:
    """The renewal comes after the undo backup is complete, just before the first delete."""
    from mpreg.keyspace.tools import purge as module

    await store.command("SET", "app:temp:a", "old", "PX", 100_000)
    await store.command("SET", "app:temp:b", "old", "PX", 100_000)
    renewed: list[asyncio.Task[Any]] = []
    read = module._read

    async def read_then_renew(*args: Any) -> Any:
        out = await read(*args)
        renewed.append(asyncio.ensure_future(RENEWALS[how](store)))
        await renewed[0]
        return out

    monkeypatch.setattr(module, "_read", read_then_renew)
    undo = tmp_path / "undo" if with_undo else None
    _, purged = await run(store, order(), undo)
    assert len(renewed) == 1
    assert purged == Purged(deleted=1, gone=0, changed=1)
    assert set(await contents(store)) == {b"app:temp:a"}


async def test_a_key_that_no_longer_meets_the_conditions_survives(store: Store, tmp_path: Path) -> None:
    await store.command("SET", "app:temp:a", "x", "PX", 50_000)
    await store.command("SET", "app:temp:b", "x", "PX", 50_000)
    short = order(where=("ttl_remaining < 60",))
    _, keys = await plan(store, short)
    await store.command("PEXPIRE", "app:temp:a", 100_000)
    await store.command("UNLINK", "app:temp:b")
    assert await purge(store, short, keys, undo=str(tmp_path / "undo")) == Purged(deleted=0, gone=1, changed=1)
    assert saved(tmp_path / "undo") == set()


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (("ttl_remaining < 60",), {b"app:temp:long", b"app:temp:never", b"app:job:1"}),
        (("ttl_remaining = none",), {b"app:temp:short", b"app:temp:long"}),
        (("type in hash,set",), {b"app:temp:short", b"app:temp:long", b"app:temp:never"}),
        (("size_bytes > 10kb",), {b"app:temp:short", b"app:temp:never", b"app:job:1"}),
        (("age > 35s",), {b"app:temp:long", b"app:temp:never", b"app:job:1"}),
        (("ttl_remaining > 1", "type = hash"), {b"app:temp:short", b"app:temp:long", b"app:temp:never", b"app:job:1"}),
        (('{"ttl_remaining": {"$gt": 50, "$lt": 300}}',), {b"app:temp:short", b"app:temp:never", b"app:job:1"}),
    ],
)
async def test_conditions_decide(store: Store, tmp_path: Path, where: tuple[str, ...], left: set[bytes]) -> None:
    await store.command("SET", "app:temp:short", "x", "PX", 20_000)
    await store.command("SET", "app:temp:long", "x" * 20_000, "PX", 200_000)
    await store.command("SET", "app:temp:never", "x")
    await store.command("HSET", "app:job:1", "state", "open")
    await run(store, order(where=where), tmp_path / "undo")
    assert set(await contents(store)) == left


async def test_an_age_is_known_only_where_every_write_sets_the_same_ttl(store: Store) -> None:
    """A temp of 200 s of life has more than its declared 60: when it was written is not known."""
    await store.command("SET", "app:temp:a", "x", "PX", 200_000)
    await store.command("SET", "app:queue", "undeclared")
    planned, keys = await plan(store, order(where=("age >= 0",)))
    assert (planned.unknown, keys) == (2, [])


async def idle_for(store: Store, key: str, idle_s: int) -> None:
    await store.command("SET", "app:model", "x")
    payload = await store.command("DUMP", "app:model")
    await store.command("UNLINK", "app:model")
    await store.command("RESTORE", key, 0, payload, "IDLETIME", idle_s)


async def test_looking_is_not_using(store: Store, tmp_path: Path) -> None:
    await idle_for(store, "app:temp:a", 5_000)
    idle = order(where=("idle >= 1h",))
    for _ in range(3):
        assert (await plan(store, idle))[0].chosen == 1
    assert (await run(store, idle, tmp_path / "undo"))[1].deleted == 1


async def test_a_key_that_is_used_after_it_was_chosen_survives(store: Store, tmp_path: Path) -> None:
    await idle_for(store, "app:temp:a", 5_000)
    await idle_for(store, "app:temp:b", 5_000)
    idle = order(where=("idle >= 1h",))
    _, keys = await plan(store, idle)
    await store.command("GET", "app:temp:a")
    assert await purge(store, idle, keys, undo=None) == Purged(deleted=1, gone=0, changed=1)
    assert set(await contents(store)) == {b"app:temp:a"}


@pytest.mark.parametrize(
    ("policy", "known", "unknown"), [("allkeys-lfu", "frequency", "idle"), ("noeviction", "idle", "frequency")]
)
async def test_what_the_server_does_not_track_is_refused(policy: str, known: str, unknown: str) -> None:
    with valkey(options=["--maxmemory-policy", policy, "--maxmemory", "100mb"]) as server:
        async with await connect(server.url) as store:
            await store.command("SET", "app:temp:a", "x")
            assert (await plan(store, order(where=(f"{known} >= 0",))))[0].chosen == 1
            with pytest.raises(KeyspaceError, match=f"does not track {unknown}") as caught:
                await plan(store, order(where=(f"{unknown} >= 0",)))
    assert caught.value.code == "KEYSPACE_INVALID_QUERY"


async def test_both_ways_of_use_are_never_known_together() -> None:
    with pytest.raises(KeyspaceError, match="idle and frequency"):
        order(where=("idle > 1", "frequency > 1"))


async def test_without_undo_no_file_is_written(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await fill(store)
    _, purged = await run(store, order(), None)
    assert purged.deleted > 5
    assert os.listdir(tmp_path) == []


async def test_an_undo_file_that_can_not_be_finished_stops_the_purge(store: Store, tmp_path: Path) -> None:
    """As on a full disk: this process may write no file of more than 100 kB."""
    await fill(store)
    before = await contents(store)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(KeyspaceError, match="can't be written") as caught:
            await run(store, order(), tmp_path / "undo")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.code == "KEYSPACE_FILE"
    assert await contents(store) == before
    assert os.listdir(tmp_path) == []


async def test_an_undo_file_that_exists_stops_the_purge(store: Store, tmp_path: Path) -> None:
    await store.command("SET", "app:temp:a", "x")
    (tmp_path / "undo").write_bytes(b"precious")
    with pytest.raises(KeyspaceError, match="exists already"):
        await run(store, order(), tmp_path / "undo")
    assert (tmp_path / "undo").read_bytes() == b"precious"
    assert await store.command("EXISTS", "app:temp:a") == 1


async def test_the_undo_file_is_whole_before_the_first_key_goes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpreg.keyspace.tools import purge as module

    await fill(store)
    before = await contents(store, "app:*")
    seen: list[set[bytes]] = []
    delete = module._delete

    def watched(opened_store: Store, fingerprint: Any) -> Any:
        if not seen:
            seen.append(saved(tmp_path / "undo"))
        return delete(opened_store, fingerprint)

    monkeypatch.setattr(module, "_delete", watched)
    await run(store, order(include_protected=frozenset({"app/active"})), tmp_path / "undo")
    assert seen == [set(before)]


async def test_a_store_that_goes_away_midway_says_how_many_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpreg.keyspace.tools import purge as module

    with valkey() as server:
        async with await connect(server.url) as store:
            for n in range(1_200):
                store.send("SET", f"app:temp:{n}", "x")
            deletes = 0
            delete = module._delete

            def stop_after_a_batch(opened_store: Store, fingerprint: Any) -> Any:
                nonlocal deletes
                deletes += 1
                if deletes == 501:
                    server.kill()
                return delete(opened_store, fingerprint)

            monkeypatch.setattr(module, "_delete", stop_after_a_batch)
            with pytest.raises(KeyspaceError) as caught:
                await run(store, order(), tmp_path / "undo")
    assert caught.value.code == "KEYSPACE_PURGE_FAILED"
    assert caught.value.details["deleted"] == 500
    assert caught.value.details["undo"] == str(tmp_path / "undo")
    assert len(saved(tmp_path / "undo")) == 1_200

"""Keys that should have an end and have none; giving them one touches nothing else."""

from __future__ import annotations

import pytest
from tests.keyspace.tools.sample import CATALOG

from mpreg.keyspace.catalog import Catalog
from mpreg.keyspace.codec import text
from mpreg.keyspace.keyspace import Keyspace
from mpreg.keyspace.tools.selection import select
from mpreg.keyspace.tools.ttl import Audit, audit
from mpreg.keyspace.ttl import Ttl
from mpreg.store import Store

pytestmark = pytest.mark.anyio


async def check(store: Store, *families: str, fix: bool = False, protected: tuple[str, ...] = ()) -> Audit:
    return await audit(store, select(CATALOG, None, families), fix=fix, include_protected=frozenset(protected))


async def mixed(store: Store) -> None:
    await store.command("SET", "app:temp:endless", "x")
    await store.command("SET", "app:temp:fine", "x", "EX", 60)
    await store.command("SET", "app:temp:long", "x", "EX", 9_000)
    await store.command("RPUSH", "app:temp:list", "x")
    await store.command("RPUSH", "app:queue:a", "x")
    await store.command("RPUSH", "app:queue:b", "x")
    await store.command("EXPIRE", "app:queue:b", 100)
    await store.command("SET", "app:lock:a", "nobody knows")
    await store.command("SET", "app:unknown", "x")


async def left_ms(store: Store, key: str) -> int:
    return int(await store.command("PTTL", key))


async def test_an_audit_counts_what_is_wrong_and_changes_nothing(store: Store) -> None:
    await mixed(store)
    found = await check(store)
    temp, queue, lock = (found.families[f"app/{name}"] for name in ("temp", "queue", "lock"))
    assert (temp.keys, temp.missing, temp.too_long, temp.other_type) == (4, 1, 1, 1)
    assert (temp.declared_s, temp.required, temp.fixed) == (60, True, 0)
    assert sorted(temp.examples) == ["app:temp:endless", "app:temp:long"]
    assert (queue.keys, queue.undeclared, queue.missing) == (2, 1, 0)
    assert (lock.missing, lock.protected) == (1, True)
    assert found.undeclared_keys == 1
    assert found.faults == 3
    assert await left_ms(store, "app:temp:endless") == -1


async def test_fix_gives_the_declared_ttl_to_keys_without_one_and_to_no_other(store: Store) -> None:
    await mixed(store)
    found = await check(store, fix=True)
    assert found.families["app/temp"].fixed == 1
    assert found.faults == 2
    assert 50_000 < await left_ms(store, "app:temp:endless") <= 60_000
    assert await left_ms(store, "app:temp:long") > 60_000
    for key in ("app:temp:list", "app:queue:a", "app:lock:a", "app:unknown"):
        assert await left_ms(store, key) == -1
    assert (await check(store, fix=True)).families["app/temp"].fixed == 0


async def test_a_lock_without_an_end_gets_one_only_when_its_family_is_named(store: Store) -> None:
    await store.command("SET", "app:lock:a", "nobody knows")
    assert (await check(store, fix=True)).faults == 1
    assert (await check(store, fix=True, protected=("app/lock",))).faults == 0
    assert 290_000 < await left_ms(store, "app:lock:a") <= 300_000


async def test_only_the_families_asked_for_are_judged_and_fixed(store: Store) -> None:
    await mixed(store)
    await store.command("HSET", "app:job:1", "state", "open")
    found = await check(store, "job", fix=True)
    assert list(found.families) == ["app/job"]
    assert found.families["app/job"].fixed == 1
    assert await left_ms(store, "app:temp:endless") == -1


async def test_a_key_that_ends_at_midnight_and_one_that_may_live_for_ever(store: Store) -> None:
    days = Keyspace("days", prefix="day:")
    days.set("today:{name}", text, name="today", ttl=Ttl(until="midnight"))
    days.set("some:{name}", text, name="some", ttl=Ttl(seconds=10, required=False))
    await store.command("SADD", "day:today:a", "x")
    await store.command("SADD", "day:some:a", "x")
    found = await audit(store, select(Catalog([days]), None, ()), fix=True)
    assert found.families["days/today"].fixed == 1
    assert found.families["days/some"].optional == 1
    assert found.faults == 0
    assert 0 < await left_ms(store, "day:today:a") <= 25 * 3_600_000
    assert await left_ms(store, "day:some:a") == -1

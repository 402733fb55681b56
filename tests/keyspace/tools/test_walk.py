"""A walk shows each key once, whatever its bytes, with its declaration, type and life."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.keyspace.tools.poppo_store import CATALOG, fill

from mpreg.keyspace import Catalog, Keyspace, text
from mpreg.keyspace.tools.walk import NO_TTL, Scope, Walked, key_count, look_at, scope_of, walk
from mpreg.store import Store

pytestmark = pytest.mark.anyio


async def walked(store: Store, scope: Scope, **options: float) -> dict[bytes, Walked]:
    found: dict[bytes, Walked] = {}
    async for page in walk(store, CATALOG, scope, **options):
        for one in page.found:
            assert one.key not in found, "once each"
            found[one.key] = one
    return found


async def test_every_key_under_the_prefix_is_seen_known_or_not(store: Store) -> None:
    await fill(store)
    odd = [b"poppo:with space", b"poppo:line\nfeed", b"poppo:\xff\x00", b"poppo:*", b"poppo:issue:status:12x"]
    for key in odd:
        await store.command("SET", key, "x")
    await store.command("SET", "other:key", "x")
    found = await walked(store, scope_of(CATALOG))
    assert {key for key, one in found.items() if one.match is None} == set(odd)
    assert b"other:key" not in found
    lock = found[b"poppo:lock:issue:123"]
    assert lock.match is not None
    assert (lock.match.declaration.name, lock.match.values, lock.type) == ("lock:issue", {"issue": 123}, "string")
    assert 290_000 < lock.ttl_ms <= 300_000
    assert found[b"poppo:issues:processing"].ttl_ms == NO_TTL
    assert await key_count(store) == len(found) + 1


async def test_a_scope_limits_what_is_seen(store: Store) -> None:
    await fill(store)
    await store.command("SET", "other:key", "x")
    some = await walked(store, scope_of(CATALOG, ["issue:status", "poppo/queue"]))
    assert sorted(some) == [b"poppo:issue:status:%d" % n for n in (123, 124, 125)] + [b"poppo:queue:high"]
    assert b"other:key" in await walked(store, scope_of(CATALOG, everything=True))


async def test_thousands_of_keys_come_once_each(store: Store) -> None:
    keys = {b"poppo:flags:%d" % n for n in range(3_000)}
    await asyncio.gather(*(store.send("SET", key, "x") for key in keys))
    assert set(await walked(store, scope_of(CATALOG), keys_per_s=1e9)) == keys


async def test_a_key_that_is_gone_is_counted_not_shown(store: Store) -> None:
    await store.command("SET", "poppo:flags:a", "x")
    page = await look_at(store, CATALOG, [b"poppo:flags:a", b"poppo:flags:b"])
    assert ([one.key for one in page.found], page.gone) == ([b"poppo:flags:a"], 1)


def test_several_keyspaces_are_scanned_by_what_they_have_in_common() -> None:
    one, two, bare = Keyspace("one", prefix="app:one:"), Keyspace("two", prefix="app:two:"), Keyspace("bare")
    for space in (one, two, bare):
        space.string("k:{x}", text)
    assert scope_of(Catalog([one, two])) == Scope(b"app:*", (b"app:one:", b"app:two:"))
    assert scope_of(Catalog([one])) == Scope(b"app:one:*", (b"app:one:",))
    assert scope_of(Catalog([one, bare])) == Scope(b"*", (b"app:one:", b"k:"))
    assert scope_of(Catalog([])) == Scope(b"*")
    assert scope_of(Catalog([one]), everything=True) == Scope(b"*")
    assert scope_of(Catalog([one]), ["k"]) == Scope(b"app:one:k:*", families=frozenset({"one/k"}))
    assert not scope_of(Catalog([one, two])).takes(b"app:three:x", None)


def test_without_a_prefix_unknown_keys_are_looked_for_where_families_begin() -> None:
    space = Keyspace("broker")
    space.lock("issue_lock_{issue:int}", name="lock")
    space.string("paused", text)
    scope = scope_of(Catalog([space]))
    assert scope.takes(b"issue_lock_x", None)
    assert scope.takes(b"paused", space.family_of(b"paused"))
    assert not scope.takes(b"paused_by_another_program", None)


def test_a_scope_is_plain_data() -> None:
    assert msgspec.structs.asdict(Scope(b"*"))["families"] is None

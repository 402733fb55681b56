"""What a lock of the store keeps beside itself is as declared."""

from __future__ import annotations

import pytest

from mpreg.keyspace import Catalog, Keyspace
from mpreg.keyspace.schema import dump, load_schema
from mpreg.keyspace.tools.lint import Report, lint
from mpreg.keyspace.tools.walk import Scope, scope_of, walk
from mpreg.store import Store
from mpreg.store.lock import Lock
from mpreg.store.lock_keys import lock_keys
from mpreg.store.lock_view import break_lock

demo = Keyspace("demo", prefix="demo:")
JOB = demo.lock("lock:{job:word}", ttl=30, fenced=True)
SLOT = demo.lock("{{{queue:word}}}:lock", ttl=30, name="slot", fenced=True)
CATALOG = Catalog([demo])


async def linted(store: Store, scope: Scope) -> Report:
    return [report async for report in lint(store, CATALOG, scope)][-1]


@pytest.mark.anyio
async def test_every_key_of_a_lock_is_known_and_as_declared(store: Store) -> None:
    job, slot = JOB.key(job="a"), SLOT.key(queue="q")
    for key in (job, slot):
        keys = lock_keys(key, record=True)
        await Lock(store, keys, ttl_s=30).acquire()
        await break_lock(store, keys, reason="a test")
        await Lock(store, keys, ttl_s=30, renew=False).acquire()
    scope = scope_of(CATALOG, everything=True)
    walked = [one async for page in walk(store, CATALOG, scope) for one in page.found]
    assert {one.match.declaration.name if one.match else one.key for one in walked} == {
        *("lock", "lock:fence", "lock:owner", "lock:breaks"),
        *("slot", "slot:fence", "slot:owner", "slot:breaks"),
    }
    assert {one.match.values["job"] for one in walked if one.match and b"demo:lock:" in one.key} == {"a"}
    report = await linted(store, scope)
    assert (report.scanned, report.findings) == (8, [])


@pytest.mark.anyio
async def test_they_are_seen_though_they_lie_outside_the_prefix(store: Store) -> None:
    await Lock(store, lock_keys(JOB.key(job="a"), record=True), ttl_s=30).acquire()
    await store.command("SET", "{other}:fence", "1")
    report = await linted(store, scope_of(CATALOG))
    assert (report.scanned, report.findings) == (3, [])


def test_a_schema_file_keeps_their_names() -> None:
    (loaded,) = load_schema(dump((demo,)))
    assert dump((loaded,)) == dump((demo,))
    match = loaded.family_of(b"{demo:lock:a}:fence")
    assert match is not None
    assert (match.declaration.name, match.values) == ("lock:fence", {"job": "a"})


def test_a_fence_is_deleted_only_when_it_is_asked_for() -> None:
    assert demo.declarations["lock:fence"].protection == "state"
    assert demo.declarations["lock:owner"].protection == "lock"

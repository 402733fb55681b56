"""Changes are seen as they happen, each with what its key is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from examples.poppo_keys import FLAG, ISSUE_STATUS, IssueStatus
from tests.keyspace.tools.poppo_store import CATALOG
from tests.store.servers import valkey

from mpreg.keyspace.tools.contents import shown
from mpreg.keyspace.tools.walk import scope_of
from mpreg.keyspace.tools.watch import Change, Watched, watching
from mpreg.store import Gap, Store, connect

pytestmark = pytest.mark.anyio


async def take(changes: AsyncIterator[Watched], count: int) -> list[Change]:
    out: list[Change] = []
    async for one in changes:
        assert not isinstance(one, Gap)
        out.append(one)
        if len(out) == count:
            break
    return out


async def test_each_change_is_read_back_to_its_declaration(store: Store) -> None:
    async with watching(store, CATALOG, scope_of(CATALOG)) as changes:
        await FLAG.at(flag="a:b").set(store, "on")
        await store.command("SET", "elsewhere", "x")
        await store.command("SET", b"poppo:\xff\n", "x")
        await store.command("DEL", FLAG.key(flag="a:b"))
        seen = {(one.key, one.event): one for one in await take(changes, 3)}
    assert set(seen) == {(b"poppo:flags:a:b", "set"), (b"poppo:\xff\n", "set"), (b"poppo:flags:a:b", "del")}
    match = seen[b"poppo:flags:a:b", "set"].match
    assert match is not None
    assert (match.declaration.name, match.values) == ("flags", {"flag": "a:b"})
    assert seen[b"poppo:\xff\n", "set"].match is None


async def test_with_values_each_key_is_read(store: Store) -> None:
    scope = scope_of(CATALOG, ["issue:status"])
    async with watching(store, CATALOG, scope, events=frozenset({"hset", "del"}), values=True) as changes:
        await ISSUE_STATUS.at(issue=1).put(store, IssueStatus(status="queued"))
        (written,) = await take(changes, 1)
        await store.command("DEL", ISSUE_STATUS.key(issue=1))
        (gone,) = await take(changes, 1)
    assert written.contents is not None
    assert written.match is not None
    value: Any = shown(written.match.declaration, written.contents)[0]
    assert value["status"] == "queued"
    assert (gone.event, gone.contents) == ("del", None)


async def test_a_server_that_dies_leaves_a_gap_and_is_watched_again() -> None:
    with valkey(durability="always") as server:
        async with await connect(server.url) as store, watching(store, CATALOG, scope_of(CATALOG)) as changes:
            await store.command("SET", "poppo:flags:a", "1")
            assert [one.event for one in await take(changes, 1)] == ["set"]
            server.kill()
            server.start()
            assert isinstance(await anext(changes), Gap)
            await store.command("SET", "poppo:flags:a", "2")
            assert [one.event for one in await take(changes, 1)] == ["set"]

"""What belongs to one thing is found, and what only looks alike is not."""

from __future__ import annotations

import pytest
from examples.poppo_keys import ISSUE_STATUS, PROCESSING
from tests.keyspace.tools.poppo_store import CATALOG, PROCESS, fill

from mpreg.errors import KeyspaceError
from mpreg.keyspace import Catalog, Keyspace, integer, relation, text
from mpreg.keyspace.tools.find import Found, Thing, find, parse_query
from mpreg.store import Store


async def there(store: Store, query: str, catalog: Catalog = CATALOG, **options: int) -> set[bytes]:
    found = await find(store, catalog, parse_query(catalog, query), **options)
    return keys(found)


def keys(found: Found) -> set[bytes]:
    return {key for key, one in found.keys.items() if one.walked is not None}


@pytest.mark.anyio
async def test_all_of_an_issue_its_process_and_where_they_are_listed(store: Store) -> None:
    await fill(store)
    await store.command("HSET", "poppo:stats:issues:daily:0123-01-01", "x", 1)
    assert await there(store, "issue 123") == {
        b"poppo:issue:status:123",
        b"poppo:issue:metadata:123",
        b"poppo:lock:issue:123",
        b"poppo:issues:processing",
        b"poppo:process:info:" + PROCESS.encode(),
        b"poppo:process:heartbeat:" + PROCESS.encode(),
        b"poppo:processes:active",
    }


@pytest.mark.anyio
async def test_a_thing_is_found_where_it_waits(store: Store) -> None:
    await fill(store)
    found = await there(store, "task task-7")
    assert {b"poppo:task:info:task-7", b"poppo:queue:high", b"poppo:queue:inflight"} <= found
    assert b"poppo:issue:status:125" in found, "where the task leads"
    assert b"poppo:queue:low" not in found


@pytest.mark.anyio
async def test_depth_says_how_far_relations_are_followed(store: Store) -> None:
    await fill(store)
    assert await there(store, "issue 123", depth=0) == {
        b"poppo:issue:status:123",
        b"poppo:issue:metadata:123",
        b"poppo:lock:issue:123",
        b"poppo:issues:processing",
    }


@pytest.mark.anyio
async def test_keys_that_would_belong_to_it_are_known_to_be_absent(store: Store) -> None:
    await ISSUE_STATUS.at(issue=5).change(store, status="processing", process_id="ghost")
    found = await find(store, CATALOG, [Thing("issue", "5")])
    assert keys(found) == {b"poppo:issue:status:5"}
    absent = {key for key, one in found.keys.items() if one.walked is None}
    assert {b"poppo:lock:issue:5", b"poppo:process:info:ghost", b"poppo:process:heartbeat:ghost"} <= absent


@pytest.mark.anyio
async def test_a_key_that_needs_more_than_is_known_is_searched(store: Store) -> None:
    space = Keyspace("shop", prefix="shop:")
    space.string("order:{customer:int}:{order:int}", text)
    space.set("open:{region}", integer, relations=[relation("order", customer="key.region", order="member")])
    space.zset("vip:{region}", integer, relations=[relation("customer", customer="member")])
    space.string("customer:{customer:int}", text)
    catalog = Catalog([space])
    for key in ("shop:order:1:1", "shop:order:1:2", "shop:order:11:1", "shop:customer:1"):
        await store.command("SET", key, "x")
    await store.command("ZADD", "shop:vip:eu", 5, 1)
    await store.command("ZADD", "shop:vip:us", 5, 11)
    progress: list[int] = []
    found = await find(store, catalog, parse_query(catalog, "customer 1"), depth=0, progress=progress.append)
    assert keys(found) == {b"shop:order:1:1", b"shop:order:1:2", b"shop:customer:1", b"shop:vip:eu"}
    assert set(found.searched) == {"shop/order", "shop/vip"}
    assert progress == sorted(progress)
    assert progress[-1] == found.looked == 4, "order:1:1, order:1:2 and two sets"


@pytest.mark.anyio
async def test_no_more_than_so_many_keys_are_listed(store: Store) -> None:
    await fill(store)
    found = await find(store, CATALOG, [Thing("issue", "123")], keys_max=3)
    assert found.cut
    assert len(found.keys) <= 3 + 1, "the last one may have led to another"


@pytest.mark.anyio
async def test_what_is_stored_wrong_does_not_stop_the_search(store: Store) -> None:
    await store.command("SET", "poppo:issue:status:5", "a string")
    await store.command("HSET", "poppo:issue:metadata:5", "x", b"\xff")
    await store.command("SET", "poppo:issues:processing", "no set")
    assert await there(store, "issue 5") == {b"poppo:issue:status:5", b"poppo:issue:metadata:5"}


@pytest.mark.parametrize(
    ("query", "things"),
    [
        ("issue 123", [Thing("issue", "123")]),
        ("issue=123", [Thing("issue", "123")]),
        ("  issue   123 ", [Thing("issue", "123")]),
        ("issue:status 123", [Thing("issue", "123")]),
        ("poppo/issue:status 123", [Thing("issue", "123")]),
        ("poppo:issue:status:123", [Thing("issue", "123")]),
        ("flag a=b c", [Thing("flag", "a=b c")]),
        ("poppo:lock:backup:daily", [Thing("kind", "backup"), Thing("name", "daily")]),
    ],
)
def test_ways_to_say_what_is_looked_for(query: str, things: list[Thing]) -> None:
    assert parse_query(CATALOG, query) == things


@pytest.mark.parametrize("query", ["", "issue", "issue=", "nothing 5", "123", str(PROCESSING.key())])
def test_a_query_that_says_nothing_is_refused_with_what_there_is(query: str) -> None:
    with pytest.raises(KeyspaceError) as caught:
        parse_query(CATALOG, query)
    assert caught.value.code == "KEYSPACE_INVALID_QUERY"

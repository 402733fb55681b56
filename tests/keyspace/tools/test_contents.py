"""No key is too large to look at: what is read has a limit, and what was left out is said."""

from __future__ import annotations

from typing import Any

import pytest
from examples.poppo_keys import ISSUE_STATUS
from tests.keyspace.tools.poppo_store import CATALOG

from mpreg.keyspace.tools.contents import Contents, decode, plain_value, read, shown
from mpreg.store import Store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("type", "write", "size"),
    [
        ("string", ("SET", "k", b"x" * 5_000_000), 5_000_000),
        ("hash", ("HSET", "k", *[part for n in range(3_000) for part in (f"f{n}", "v" * 100)]), 3_000),
        ("set", ("SADD", "k", *[f"m{n}" for n in range(3_000)]), 3_000),
        ("list", ("RPUSH", "k", *[f"m{n}" for n in range(3_000)]), 3_000),
        ("zset", ("ZADD", "k", *[part for n in range(3_000) for part in (n, f"m{n}")]), 3_000),
    ],
)
async def test_a_large_value_is_read_in_part(store: Store, type: str, write: tuple[Any, ...], size: int) -> None:
    await store.command(*write)
    contents = await read(store, b"k", type, elements_max=50, bytes_max=100_000)
    assert contents is not None
    assert (contents.size, contents.complete) == (size, False)
    assert 0 < len(contents.parts) <= (100 if type == "hash" else 50)
    assert sum(len(part) for part in contents.parts if isinstance(part, bytes)) <= 100_000


async def test_a_large_stream_is_read_from_its_beginning(store: Store) -> None:
    for number in range(1, 200):
        await store.command("XADD", "k", f"{number}-0", "f", number)
    contents = await read(store, b"k", "stream", elements_max=2)
    assert contents == Contents("stream", 199, [(b"1-0", {b"f": b"1"}), (b"2-0", {b"f": b"2"})], False)


async def test_few_elements_that_are_large_count_by_their_bytes(store: Store) -> None:
    await store.command("RPUSH", "k", *[b"x" * 100_000] * 50)
    contents = await read(store, b"k", "list", elements_max=50, bytes_max=1_000_000)
    assert contents is not None
    assert 5 <= len(contents.parts) <= 11


async def test_the_declared_fields_of_a_huge_hash_are_among_what_is_read(store: Store) -> None:
    key = ISSUE_STATUS.key(issue=1)
    await store.command("HSET", key, *[part for n in range(3_000) for part in (f"f{n}", "v")], "status", "queued")
    contents = await read(store, key, "hash", ISSUE_STATUS.declaration, elements_max=5)
    assert contents is not None
    assert not contents.complete
    (status,) = decode(ISSUE_STATUS.declaration, contents)
    assert status.status == "queued"


async def test_a_key_that_is_gone_or_changed_its_type_is_nothing(store: Store) -> None:
    await store.command("SET", "k", "x")
    assert await read(store, b"k", "hash") is None
    assert await read(store, b"gone", "string") is None
    assert await read(store, b"gone", "set") is None
    await store.command("SET", "empty", "")
    assert await read(store, b"empty", "string") == Contents("string", 0, [b""], True)


@pytest.mark.parametrize(
    ("write", "key", "value", "fault"),
    [
        (("SET", "poppo:flags:a", b"\xff"), b"poppo:flags:a", {"base64": "/w=="}, "is not text"),
        (("SET", "poppo:task:result:t", '{"a": 1}'), b"poppo:task:result:t", {"a": 1}, None),
        (("SET", "unknown", "x"), b"unknown", "x", None),
        (("HSET", "poppo:issue:status:1", "status", "no"), b"poppo:issue:status:1", {"status": "no"}, "status"),
        (("SADD", "poppo:issues:processing", 5), b"poppo:issues:processing", [5], None),
        (("LPUSH", "poppo:queue:low", "b", "a"), b"poppo:queue:low", ["a", "b"], None),
        (("ZADD", "poppo:queue:inflight", 2, "t"), b"poppo:queue:inflight", [{"member": "t", "score": 2.0}], None),
        (
            ("XADD", "poppo:metrics:m:history", "1-1", "value", "0.5", "at", "2025-06-19T12:00:00Z"),
            b"poppo:metrics:m:history",
            [{"id": "1-1", "entry": {"value": 0.5, "at": "2025-06-19T12:00:00Z"}}],
            None,
        ),
        (("XADD", "other", "1-1", "f", b"\xff"), b"other", [{"id": "1-1", "entry": {"f": {"base64": "/w=="}}}], None),
    ],
)
async def test_what_is_shown(store: Store, write: tuple[Any, ...], key: bytes, value: Any, fault: str | None) -> None:
    await store.command(*write)
    match = CATALOG.family_of(key)
    declaration = match.declaration if match is not None else None
    type = (await store.command("TYPE", key)).decode()
    contents = await read(store, key, type, declaration)
    assert contents is not None
    found, why = shown(declaration, contents)
    assert found == value
    assert (why is None) == (fault is None)
    assert fault is None or fault in str(why)


def test_what_json_can_t_hold_is_shown_all_the_same() -> None:
    assert plain_value({b"a": [b"\xff", 1]}) == {"a": [{"base64": "/w=="}, 1]}
    assert plain_value(object).startswith("<class")

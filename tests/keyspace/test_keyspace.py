"""Declared once: what contradicts itself is refused, and every key is read back to its declaration."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from examples.poppo_keys import (
    COMPLETED,
    EVENTS,
    FLAG,
    HEARTBEAT,
    ISSUE_LOCK,
    ISSUE_STATUS,
    LOCK,
    PROCESSING,
    QUEUE,
    IssueStatus,
    poppo,
)

from mpreg.errors import KeyspaceError
from mpreg.keyspace import Catalog, Keyspace, Ttl, common_glob, integer, json, relation, text


class Status(msgspec.Struct):
    state: str
    by: str | None = None


@pytest.mark.parametrize(
    ("key", "family", "values"),
    [
        (ISSUE_STATUS.key(issue=123), "issue:status", {"issue": 123}),
        (HEARTBEAT.key(process="issue-123-poppo"), "process:heartbeat", {"process": "issue-123-poppo"}),
        (COMPLETED.key(date=datetime.date(2025, 6, 19)), "issues:completed", {"date": datetime.date(2025, 6, 19)}),
        (b"poppo:issues:completed:today", "issues:completed:today", {}),
        (QUEUE.key(priority="high"), "queue", {"priority": "high"}),
        (b"poppo:queue:inflight", "queue:inflight", {}),
        (FLAG.key(flag="debug:enabled"), "flags", {"flag": "debug:enabled"}),
        (LOCK.key(kind="backup", name="daily"), "lock", {"kind": "backup", "name": "daily"}),
        (ISSUE_LOCK.key(issue=123), "lock:issue", {"issue": 123}),
        (PROCESSING.key(), "issues:processing", {}),
    ],
)
def test_a_key_is_read_back_to_its_family(key: bytes, family: str, values: dict[str, Any]) -> None:
    match = poppo.family_of(key)
    assert match is not None
    assert (match.declaration.name, match.values) == (family, values)


@pytest.mark.parametrize(
    "key",
    [b"", b"poppo:", b"poppo:issue:status:", b"poppo:issue:status:x", b"poppo:queue:urgent", b"other", b"poppo:\xff\n"],
)
def test_a_key_that_nobody_declared_is_of_no_family(key: bytes) -> None:
    assert poppo.family_of(key) is None


def test_a_channel_is_declared_beside_the_keys() -> None:
    name = EVENTS.channel(subject="issue", kind="status")
    assert name == b"poppo:channel:events:issue:status"
    assert EVENTS.parse(name) == {"subject": "issue", "kind": "status"}
    assert poppo.family_of(name) is None


def test_the_hash_tag_of_a_pattern_is_known() -> None:
    space = Keyspace("demo")
    assert space.zset("{{{queue}}}:ready", text).declaration.hash_tag == "{queue}"
    assert space.zset("jobs:{id}", text).declaration.hash_tag is None
    assert list(space.declarations) == ["ready", "jobs"]


def declare_nothing(space: Keyspace) -> None:
    space.string("a:{x}", text, name="")


REFUSED: list[tuple[str, Callable[[Keyspace], object]]] = [
    ("name", lambda space: space.string("{x}", text)),
    ("name", declare_nothing),
    ("name", lambda space: (space.string("a:{x}", text), space.string("a:{x}:b", text, name="a"))),
    ("ttl", lambda space: space.lock("lock:{x}", ttl=Ttl(seconds=5, required=False))),
    ("ttl", lambda space: space.string("a", text, ttl=-1)),
    ("ttl", lambda space: space.string("a", text, protection="lock")),
    ("protection", lambda space: space.string("a", text, protection="some")),  # type: ignore[arg-type]  # on purpose
    ("fields", lambda space: space.hash("a", dict)),
    ("entries_max", lambda space: space.stream("a", Status, entries_max=0)),
    ("relations", lambda space: space.string("a", text, relations=[relation("b", x="member")])),
    ("relations", lambda space: space.string("a", text, relations=[relation("b", x="nowhere.x")])),
    ("relations", lambda space: space.string("a", text, relations=[relation("b", x="key")])),
    ("codec", lambda space: space.string("a", json(object))),
]


@pytest.mark.parametrize(("field", "declare"), REFUSED)
def test_a_declaration_that_contradicts_itself_is_refused(field: str, declare: Callable[[Keyspace], object]) -> None:
    space = Keyspace("demo")
    with pytest.raises(KeyspaceError) as caught:
        declare(space)
    assert (caught.value.code, caught.value.details["field"]) == ("KEYSPACE_INVALID_DECLARATION", field)


@pytest.mark.parametrize(
    "one",
    [
        relation("nothing", x="key.id"),
        relation("target", x="key.id", y="key.id"),
        relation("target", x="key.other"),
    ],
)
def test_a_relation_that_leads_nowhere_is_found_when_all_is_declared(one: Any) -> None:
    space = Keyspace("demo")
    space.string("target:{x}", text)
    space.string("source:{id}", text, relations=[one])
    with pytest.raises(KeyspaceError) as caught:
        Catalog([space])
    assert caught.value.details["field"] == "relations"


def test_keyspaces_that_share_a_key_can_t_be_joined() -> None:
    one, other = Keyspace("one", prefix="x:"), Keyspace("other")
    one.string("a:{n:int}", text)
    other.string("x:{rest:path}", text)
    with pytest.raises(KeyspaceError, match="one/a and other/x share a key: 'x:a:0'"):
        Catalog([one, other])
    with pytest.raises(KeyspaceError, match="same name"):
        Catalog([Keyspace("one"), Keyspace("one")])


def test_the_common_glob_covers_families_and_little_else() -> None:
    catalog = Catalog([poppo])
    assert common_glob(catalog.select(["issue:status"])) == b"poppo:issue:status:*"
    assert common_glob(catalog.select(["issue:status", "poppo/issues:processing"])) == b"poppo:issue*"
    assert common_glob(()) == b"*"
    with pytest.raises(KeyspaceError, match="no family is called 'issue'"):
        catalog.select(["issue"])


def test_a_handle_builds_the_key_that_the_family_does() -> None:
    assert ISSUE_STATUS.at(issue=7).name == ISSUE_STATUS.key(issue=7)
    assert ISSUE_STATUS.named(b"poppo:issue:status:7").name == b"poppo:issue:status:7"
    with pytest.raises(KeyspaceError, match="unknown: number"):
        ISSUE_STATUS.at(number=7)


def test_a_counter_is_a_string_of_an_integer() -> None:
    declaration = Keyspace("demo").counter("hits:{page}", ttl=60).declaration
    assert (declaration.type, declaration.codec, declaration.counter) == ("string", integer, True)


def test_the_example_s_structs_are_named_as_other_languages_see_them() -> None:
    fields = ISSUE_STATUS.declaration.fields
    assert fields is not None
    assert fields.encode(IssueStatus(status="queued", process_id="p")) == {b"status": b"queued", b"processId": b"p"}

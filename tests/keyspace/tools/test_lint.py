"""Lint reports each contradiction once, and nothing about keys that are as declared."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from examples.poppo_keys import ACTIVE, HEARTBEAT, ISSUE_STATUS, PROCESSING, QUEUE
from tests.keyspace.tools.poppo_store import CATALOG, KEYS, PROCESS, fill

from mpreg.keyspace import Catalog, Keyspace, Ttl, json, relation, text
from mpreg.keyspace.tools import lint as lint_module
from mpreg.keyspace.tools.lint import RULES, Report, lint
from mpreg.keyspace.tools.walk import scope_of
from mpreg.store import Store

pytestmark = pytest.mark.anyio


async def checked(store: Store, catalog: Catalog = CATALOG, **options: Any) -> Report:
    reports = [one async for one in lint(store, catalog, scope_of(catalog), **options)]
    return reports[-1] if reports else Report()


def found(report: Report) -> set[tuple[str, bytes]]:
    assert report.total == len(report.findings)
    return {(one.rule, one.key) for one in report.findings}


async def test_a_store_that_is_as_declared_has_no_findings(store: Store) -> None:
    await fill(store)
    report = await checked(store)
    assert found(report) == set()
    assert (report.scanned, report.unread) == (KEYS, 0)


@pytest.mark.parametrize(
    ("rule", "key", "commands"),
    [
        ("unknown-key", b"poppo:issue:statsu:1", [("SET", b"poppo:issue:statsu:1", "x")]),
        ("unknown-key", b"poppo:\xff \n", [("SET", b"poppo:\xff \n", "x")]),
        ("wrong-type", b"poppo:issue:status:9", [("SET", b"poppo:issue:status:9", "processing")]),
        ("missing-ttl", b"poppo:process:heartbeat:" + PROCESS.encode(), [("PERSIST", HEARTBEAT.key(process=PROCESS))]),
        ("lock-without-ttl", b"poppo:lock:backup:daily", [("SET", b"poppo:lock:backup:daily", "x")]),
        ("long-ttl", b"poppo:lock:backup:daily", [("SET", b"poppo:lock:backup:daily", "x", "EX", 302)]),
        ("undeclared-ttl", b"poppo:issue:status:124", [("EXPIRE", b"poppo:issue:status:124", 9999)]),
        ("undecodable", b"poppo:issue:status:9", [("HSET", b"poppo:issue:status:9", "status", "asleep")]),
        ("undecodable", b"poppo:issue:status:9", [("HSET", b"poppo:issue:status:9", "colour", "red")]),
        ("undecodable", b"poppo:task:result:t", [("SET", b"poppo:task:result:t", "{", "EX", 60)]),
        ("undecodable", b"poppo:issues:processing", [("SADD", b"poppo:issues:processing", "12x")]),
        ("undecodable", b"poppo:metrics:cpu:history", [("XADD", b"poppo:metrics:cpu:history", "*", "value", "hot")]),
        ("dangling", b"poppo:issues:processing", [("SADD", b"poppo:issues:processing", 999)]),
        ("dangling", b"poppo:processes:active", [("SADD", b"poppo:processes:active", "not a word")]),
        ("dangling", b"poppo:queue:low", [("RPUSH", b"poppo:queue:low", "task-404")]),
        ("dangling", b"poppo:queue:inflight", [("ZADD", b"poppo:queue:inflight", 1, "task-404")]),
        ("dangling", b"poppo:process:heartbeat:ghost", [("SET", HEARTBEAT.key(process="ghost"), "x", "EX", 60)]),
    ],
)
async def test_one_contradiction_is_one_finding(
    store: Store, rule: str, key: bytes, commands: list[tuple[Any, ...]]
) -> None:
    await fill(store)
    for command in commands:
        await store.command(*command)
    report = await checked(store)
    assert found(report) == {(rule, key)}
    assert report.counts == {rule: 1}


@pytest.mark.parametrize(
    "command",
    [
        ("SET", "poppo:lock:backup:daily", "x", "EX", 300),
        ("HSET", "poppo:issue:status:124", "field of another version", "\x00"),
        ("HSET", "poppo:issue:status:124", "processId", "gone long ago"),
        ("SADD", "poppo:processes:zombies", "anybody"),
    ],
)
async def test_what_the_declaration_allows_is_no_finding(store: Store, command: tuple[Any, ...]) -> None:
    await fill(store)
    await store.command(*command)
    assert found(await checked(store)) == set()


async def test_a_ttl_that_may_be_left_out_is_not_missed(store: Store) -> None:
    space = Keyspace("opt", prefix="opt:")
    space.string("a:{x}", text, ttl=Ttl(seconds=10, required=False))
    await store.command("SET", "opt:a:1", "x")
    await store.command("SET", "opt:a:2", "x", "EX", 10)
    assert found(await checked(store, Catalog([space]))) == set()


async def test_rules_families_and_globs_narrow_what_is_reported(store: Store) -> None:
    await store.command("SET", "poppo:unknown", "x")
    await store.command("SET", "poppo:lock:backup:daily", "x")
    assert found(await checked(store, rules=["unknown-key"])) == {("unknown-key", b"poppo:unknown")}
    assert found(await checked(store, ignored=lambda key: key == b"poppo:unknown")) == {
        ("lock-without-ttl", b"poppo:lock:backup:daily")
    }


async def test_all_are_counted_though_only_so_many_are_listed(store: Store) -> None:
    await asyncio.gather(*(store.command("SET", f"poppo:unknown:{n}", "x") for n in range(50)))
    report = await checked(store, findings_max=7)
    assert (report.counts, len(report.findings)) == ({"unknown-key": 50}, 7)


async def test_a_large_collection_is_read_in_part_and_said_so(store: Store) -> None:
    await store.command("SADD", ACTIVE.key(), *[f"p{number}" for number in range(5_000)])
    await asyncio.gather(*(store.send("SET", f"poppo:process:info:p{number}", "x") for number in range(5_000)))
    await store.command("RPUSH", QUEUE.key(priority="low"), *["task"] * 3)
    report = await checked(store, rules=["dangling"])
    assert report.unread == 1
    assert found(report) == {("dangling", QUEUE.key(priority="low"))}


async def test_a_relation_inside_json_is_followed(store: Store) -> None:
    space = Keyspace("j", prefix="j:")
    space.string("job:{id}", json(dict[str, Any]), relations=[relation("user", user="value.owner.id")])
    space.string("user:{user:int}", text)
    catalog = Catalog([space])
    await store.command("SET", "j:job:1", '{"owner": {"id": 5}}')
    await store.command("SET", "j:job:2", '{"owner": {}}')
    await store.command("SET", "j:job:3", '{"owner": {"id": "five"}}')
    assert found(await checked(store, catalog)) == {("dangling", b"j:job:1"), ("dangling", b"j:job:3")}
    await store.command("SET", "j:user:5", "x")
    assert found(await checked(store, catalog)) == {("dangling", b"j:job:3")}


async def test_what_is_put_right_while_lint_looks_is_no_finding(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that adds a member just before its key, and sets a TTL just after the value, is not at fault."""
    await store.command("SADD", PROCESSING.key(), 77)
    await store.command("SET", "poppo:lock:backup:daily", "x")
    first = lint_module._absent
    second = lint_module.look_at

    async def then_it_is_there(*args: Any) -> Any:
        missing = await first(*args)
        await store.command("HSET", ISSUE_STATUS.key(issue=77), "status", "processing")
        return missing

    async def then_it_ends(*args: Any) -> Any:
        await store.command("EXPIRE", "poppo:lock:backup:daily", 60)
        return await second(*args)

    monkeypatch.setattr(lint_module, "_absent", then_it_is_there)
    monkeypatch.setattr(lint_module, "look_at", then_it_ends)
    assert found(await checked(store, rules=RULES)) == set()

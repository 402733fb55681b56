"""A hundred thousand keys: nothing that the tools do holds up the server.

The server itself is the witness: its statistics say what was called, and how long each command typically took. (A
single call may take long on a machine that is busy; a command that grows with the number of keys takes long each time,
and one that is called once is typical of itself.)
"""

from __future__ import annotations

import asyncio
import re

import pytest
from examples.poppo_keys import ISSUE_LOCK, ISSUE_STATUS, TASK_RESULT
from tests.keyspace.tools.poppo_store import CATALOG, fill
from tests.store.servers import Server, StoreServers, valkey

from mpreg.keyspace.tools.find import find, parse_query
from mpreg.keyspace.tools.lint import lint
from mpreg.keyspace.tools.stats import census, measure
from mpreg.keyspace.tools.walk import key_count, scope_of, walk
from mpreg.store import Store, connect

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KEYS = 100_000
BATCH = 5_000
LONG_US = 10_000
FORBIDDEN = re.compile(r"cmdstat_(keys|flush\w*|smembers|hgetall|del|debug\S*|randomkey|sort)\b")


async def fill_much(store: Store) -> int:
    """Issues with their status, results and locks; one set of 50,000 and one list of 50,000."""
    await fill(store)
    third = KEYS // 3
    for at in range(0, third, BATCH):
        numbers = range(at, min(at + BATCH, third))
        await asyncio.gather(
            *(store.send("HSET", ISSUE_STATUS.key(issue=n), "status", "completed") for n in numbers),
            *(store.send("SET", TASK_RESULT.key(task=f"t{n}"), '{"ok":true}', "EX", 3_000) for n in numbers),
            *(store.send("SET", ISSUE_LOCK.key(issue=n), "token", "EX", 300) for n in numbers),
            store.send("SADD", "poppo:processes:zombies", *[f"p{n}" for n in numbers]),
            store.send("RPUSH", "poppo:queue:low", *["task-7"] * len(numbers)),
        )
    return await key_count(store)


def witnesses(servers: list[Server]) -> None:
    for server in servers:
        server.call("CONFIG", "RESETSTAT")


def check_witnesses(servers: list[Server]) -> None:
    for server in servers:
        called = [line for line in server.info("commandstats") if FORBIDDEN.match(line)]
        assert called == []
        typical = {
            name.removeprefix("latency_percentiles_usec_"): float(percentiles.split(",")[0].removeprefix("p50="))
            for name, percentiles in server.info("latencystats").items()
        }
        assert "scan" in typical
        assert [name for name, us in typical.items() if us > LONG_US] == []


async def inspect(store: Store, count: int) -> None:
    scope = scope_of(CATALOG)
    walked = [len(page.found) async for page in walk(store, CATALOG, scope)]
    assert sum(walked) == count
    reports = [report async for report in lint(store, CATALOG, scope)]
    assert (reports[-1].scanned, reports[-1].counts) == (count, {})
    counted = [census async for census in census(store, CATALOG, scope)][-1]
    assert counted.scanned == count
    for family in counted.families.values():
        memory = await measure(store, family)
        assert memory.error_bytes <= memory.total_bytes * 0.2
    found = await find(store, CATALOG, parse_query(CATALOG, "issue 5"))
    assert {b"poppo:issue:status:5", b"poppo:lock:issue:5"} <= set(found.keys)


async def test_the_tools_call_nothing_that_holds_up_the_server() -> None:
    with valkey() as server:
        async with await connect(server.url) as store:
            count = await fill_much(store)
            assert count > KEYS - 1_000
            witnesses([server])
            await inspect(store, count)
            check_witnesses([server])


async def test_nor_any_server_of_a_cluster(store_servers: StoreServers) -> None:
    if store_servers.kind != "cluster":
        pytest.skip("the test above has one server")
    async with await connect(store_servers.url) as store:
        count = await fill_much(store)
        witnesses(store_servers.primaries)
        await inspect(store, count)
        check_witnesses(store_servers.primaries)

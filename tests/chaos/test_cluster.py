"""Real processes of one cluster killed and paused under load: no wrong answer, no long silence, nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.cluster_load import Load, Process, free_port

from mpreg.client import connect
from mpreg.errors import MpregError

pytestmark = pytest.mark.anyio

SETTLED_S = 8.0
"""After a fault has ended every node must know of it."""
DETECTED_S = 15.0
"""A call to a node that is gone must have failed by then; its own timeout is a minute."""


@contextlib.asynccontextmanager
async def processes(folder: Path, count: int) -> AsyncIterator[list[Process]]:
    ports = [free_port() for _ in range(count)]
    seeds = [f"tcp://127.0.0.1:{port}" for port in ports[:3]]
    nodes = [Process("abcdefgh"[at], folder, seeds, port) for at, port in enumerate(ports)]
    try:
        await asyncio.gather(*(node.start() for node in nodes))
        await agreed(nodes)
        yield nodes
    finally:
        for node in nodes:
            with contextlib.suppress(ProcessLookupError):
                node.signal(signal.SIGCONT)
            await node.kill()


async def seen_by(node: Process) -> dict[str, tuple[str, bool]]:
    async with connect(node.url, discover_s=0) as client:
        found = await client.call("mpreg.nodes")
        return {each["name"]: (each["state"], bool(each.get("linked") or each.get("self"))) for each in found}


async def agreed(nodes: list[Process]) -> None:
    """All see all, alive and linked. Nothing tells this process, so it asks."""
    wanted = {node.name: ("alive", True) for node in nodes}
    seen: list[Any] = []
    try:
        async with asyncio.timeout(60):
            while True:
                seen = await asyncio.gather(*map(seen_by, nodes))
                if all(each == wanted for each in seen):
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"they do not agree: {seen}") from None


async def quiet(node: Process) -> dict[str, Any]:
    """What a node counts when nobody asks it anything."""
    async with asyncio.timeout(30), connect(node.url, discover_s=0) as client:
        while True:
            stats = await client.call("mpreg.stats")
            cluster, rpc = stats["cluster"], stats["rpc"]
            found = {
                "links": cluster["links"],
                "calls_open": cluster["calls_open"],
                "connections": rpc["active_connections"],
                "running": rpc["running_requests"],
                "subscriptions": stats["topic_exchange"]["active_subscriptions"],
                "patterns_elsewhere": cluster["patterns_elsewhere"],
                "tasks": await client.call(f"tasks.{node.name}"),
            }
            if found["calls_open"] == 0 and found["connections"] == 1 and found["patterns_elsewhere"] == 0:
                return found
            await asyncio.sleep(0.05)


async def test_a_call_to_a_node_that_is_killed_is_lost_at_once(tmp_path: Path) -> None:
    async with processes(tmp_path, 3) as (a, b, _), connect(a.url, discover_s=0) as client:
        call = asyncio.create_task(client.call("slow.b", 1, 3600, timeout=3600))
        assert await client.call("who.b", 2) == ["b", 2]
        b.signal(signal.SIGKILL)
        with pytest.raises(MpregError) as raised:
            await asyncio.wait_for(call, 30)
        assert raised.value.code == "TRANSPORT_CONNECTION_LOST"
        assert await client.call("who.c", 3) == ["c", 3]
        with pytest.raises(MpregError) as raised:
            await client.call("who.b", 4)
        assert raised.value.code == "RPC_FUNCTION_NOT_FOUND"


async def test_a_call_to_a_node_that_stands_still_is_lost_within_the_detection_time(tmp_path: Path) -> None:
    async with processes(tmp_path, 3) as (a, b, _), connect(a.url, discover_s=0) as client:
        call = asyncio.create_task(client.call("slow.b", 1, 3600, timeout=3600))
        assert await client.call("who.b", 2) == ["b", 2]
        b.signal(signal.SIGSTOP)
        with pytest.raises(MpregError) as raised:
            await asyncio.wait_for(call, 60)
        assert raised.value.code == "TRANSPORT_CONNECTION_LOST"
        assert (await seen_by(a)).get("b", ("dead", False)) == ("dead", False)
        b.signal(signal.SIGCONT)
        b.is_well()
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(MpregError):
                    assert await client.call("who.b", 3) == ["b", 3]
                    break
                await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_nodes_are_killed_and_paused_for_a_minute_under_load(tmp_path: Path) -> None:
    seed = time.time_ns()
    rng = random.Random(seed)
    async with processes(tmp_path, 5) as nodes:
        before = {node.name: await quiet(node) for node in nodes}
        load = Load(nodes, SETTLED_S, DETECTED_S)
        load.begin()
        end = time.monotonic() + 60
        healing: set[asyncio.Task[None]] = set()
        for kind in itertools.cycle(("kill", "pause", "kill", "pause", "both")):
            if time.monotonic() >= end:
                break
            well = [node for node in nodes if not node.faulty]
            for node in rng.sample(well, 2 if kind == "both" else 1) if len(well) > 3 else ():
                heal = _kill(node, rng.uniform(0.5, 4)) if kind == "kill" else _pause(node, rng.uniform(1, 10))
                healing.add(asyncio.create_task(heal))
            await asyncio.sleep(rng.uniform(2, 6))
        await asyncio.gather(*healing)
        await agreed(nodes)
        await load.end()
        print(f"seed {seed}: {dict(load.counts)}, longest loss {load.longest_loss_s:.1f} s")  # noqa: T201 - shown when it fails
        assert not load.wrong, (seed, load.wrong[:10], load.counts)
        assert load.counts["answered"] > 1_000
        assert load.counts["heard"] > 10_000
        await asyncio.gather(*(_all_functions(node, nodes) for node in nodes))
        for node in nodes:
            after = await quiet(node)
            assert after["links"] == before[node.name]["links"] == 4
            assert after["running"] == before[node.name]["running"]
            assert after["subscriptions"] == 0
            assert after["tasks"] <= before[node.name]["tasks"] + 1, (seed, before[node.name], after)
            assert "Traceback" not in node.log(), node.log()


async def _kill(node: Process, seconds: float) -> None:
    await node.kill()
    await asyncio.sleep(seconds)
    await node.start()


async def _pause(node: Process, seconds: float) -> None:
    node.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    node.signal(signal.SIGCONT)
    node.is_well()


async def _all_functions(entry: Process, nodes: list[Process]) -> None:
    async with connect(entry.url, discover_s=0) as client:
        for node in nodes:
            assert await client.call(f"who.{node.name}", 1) == [node.name, 1]

"""`@node.function(cache=…)`: results are kept by arguments, computed once in the cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.store.servers import StoreServers

from mpreg import Node, Settings, connect
from mpreg.node import Cached

pytestmark = pytest.mark.anyio


class Point(msgspec.Struct):
    x: int
    y: int


class Program:
    """The same program, as it runs on each node."""

    def __init__(self, url: str, name: str, calls: list[Any]) -> None:
        self.node = Node(name, Settings(store=url, ws="off", tcp="off", grace_s=5))
        self.gate = asyncio.Event()

        @self.node.function(cache=60)
        async def slow(x: int, y: int = 2) -> Point:
            calls.append((name, x, y))
            await self.gate.wait()
            return Point(x, y)

        @self.node.function(cache=Cached(ttl=60, namespace="squares"))
        def square(x: int) -> int:
            calls.append((name, x))
            return x * x

        @self.node.function(cache=60)
        async def nothing() -> None:
            calls.append(name)

        @self.node.function(cache=60)
        async def fails(x: int) -> int:
            calls.append((name, x))
            raise ValueError("no")


async def test_a_result_is_computed_once_for_its_arguments_on_all_nodes(store_servers: StoreServers) -> None:
    calls = list[Any]()
    a, b = Program(store_servers.url, "a", calls), Program(store_servers.url, "b", calls)
    async with a.node, b.node, connect(a.node) as one, connect(b.node) as two:
        asking = [asyncio.create_task(client.call("slow", 1)) for client in (one, two) for _ in range(20)]
        while not calls:
            await asyncio.sleep(0)
        a.gate.set()
        b.gate.set()
        assert await asyncio.gather(*asking) == [{"x": 1, "y": 2}] * 40
        assert await one.call("slow", y=2, x=1, result_type=Point) == Point(1, 2)
        assert len(calls) == 1
        await one.call("slow", 1, 3)
        assert len(calls) == 2


async def test_sync_functions_none_and_failures(store_servers: StoreServers) -> None:
    calls = list[Any]()
    program = Program(store_servers.url, "a", calls)
    async with program.node, connect(program.node) as client:
        assert [await client.call("square", 4) for _ in range(3)] == [16] * 3
        assert calls == [("a", 4)]
        assert await client.cache("squares").clear() == 1
        await client.call("square", 4)
        assert len(calls) == 2
        calls.clear()
        for _ in range(2):
            assert await client.call("nothing") is None
            with pytest.raises(Exception, match="no"):
                await client.call("fails", 1)
        assert calls == ["a", ("a", 1)] * 2
        functions = await client.call("mpreg.functions", result_type=list[dict[str, Any]])
        (described,) = (each for each in functions if each["name"] == "slow")
        assert list(described["arguments"]["properties"]) == ["x", "y"]

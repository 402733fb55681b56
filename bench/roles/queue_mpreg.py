"""A node of MPREG over the Valkey of the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.roles.queue import BODY, Done, Send
from mpreg import Node, Settings, connect


@asynccontextmanager
async def broker(socket: str, name: str, **_: Any) -> AsyncIterator[dict[str, Any]]:
    node = Node("bench", Settings(store=f"unix://{socket}", ws="off", tcp=0))
    async with node:
        async with connect(node) as client:
            await client.queue(name).create("priority", max_size=10_000_000)
        yield {"node": node.listeners["tcp"]}


async def consume(done: Done, consumers: int, node: str, name: str, **_: Any) -> object:
    async def one() -> None:
        async with connect(node) as client:
            async for message in client.queue(name).receive(payload_type=bytes, prefetch=256):
                message.ack().add_done_callback(lambda _: done.add())

    tasks = [asyncio.create_task(one()) for _ in range(consumers)]
    await asyncio.sleep(0.3)
    return tasks


@asynccontextmanager
async def producer(node: str, name: str, **_: Any) -> AsyncIterator[Send]:
    async with connect(node) as client:
        queue = client.queue(name)

        async def send() -> int:
            await queue.send(BODY)
            return 1

        yield send

"""redis-py: a stream with a consumer group, in pipelines of 100, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from bench.roles.queue import BODY, Done, Send, nothing_between

broker = nothing_between
BATCH = 100


async def consume(done: Done, consumers: int, url: str, name: str, **_: Any) -> object:
    await Redis.from_url(url).xgroup_create(name, "g", id="0", mkstream=True)

    async def one(number: int) -> None:
        client = Redis.from_url(url, socket_timeout=None)
        while True:
            found: Any = await client.xreadgroup("g", f"c{number}", {name: ">"}, count=BATCH, block=500)
            for _, messages in found or ():
                await client.xack(name, "g", *[message[0] for message in messages])
                done.add(len(messages))

    return [asyncio.create_task(one(number)) for number in range(consumers)]


@asynccontextmanager
async def producer(url: str, name: str, **_: Any) -> AsyncIterator[Send]:
    client = Redis.from_url(url)
    alone = asyncio.Lock()

    async def send() -> int:
        async with alone, client.pipeline(transaction=False) as pipeline:
            for _ in range(BATCH):
                pipeline.xadd(name, {"b": BODY})
            await pipeline.execute()
        return BATCH

    yield send
    await client.aclose()

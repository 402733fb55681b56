"""redis-py's asyncio client and PUBLISH, one at a time or in pipelines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from bench.roles.pubsub import Sink, nothing_between

hub = nothing_between


async def subscribe(sink: Sink, count: int, url: str, **_: Any) -> object:
    tasks = []
    for _number in range(count):
        pubsub = Redis.from_url(url).pubsub()
        await pubsub.subscribe("bench.topic")
        await pubsub.get_message(timeout=5)  # the confirmation

        async def listen(pubsub: Any = pubsub) -> None:
            async for message in pubsub.listen():
                sink.got(message["data"])

        tasks.append(asyncio.create_task(listen()))
    return tasks


class _Publisher:
    def __init__(self, client: Any, pipeline: int) -> None:
        self._client = client
        self._pipeline = pipeline
        self._waiting: list[bytes] = []

    async def send(self, payload: bytes) -> None:
        if self._pipeline == 1:
            await self._client.publish("bench.topic", payload)
            return
        self._waiting.append(payload)
        if len(self._waiting) >= self._pipeline:
            await self.settle()

    async def settle(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            async with self._client.pipeline(transaction=False) as pipe:
                for payload in waiting:
                    pipe.publish("bench.topic", payload)
                await pipe.execute()


@asynccontextmanager
async def publisher(url: str, pipeline: int, **_: Any) -> AsyncIterator[_Publisher]:
    client = Redis.from_url(url)
    yield _Publisher(client, pipeline)
    await client.aclose()

"""nats-py through nats-server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.aio.msg import Msg

from bench.roles.pubsub import Sink, nothing_between

hub = nothing_between
PENDING_BYTES = 64 << 20


async def subscribe(sink: Sink, count: int, url: str, **_: Any) -> object:
    connections = []
    for _number in range(count):
        connection = await nats.connect(url, pending_size=PENDING_BYTES)

        async def got(message: Msg) -> None:
            sink.got(message.data)

        await connection.subscribe("bench.topic", cb=got, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await connection.flush()
        connections.append(connection)
    return connections


class _Publisher:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def send(self, payload: bytes) -> None:
        await self._connection.publish("bench.topic", payload)

    async def settle(self) -> None:
        await self._connection.flush(timeout=30)


@asynccontextmanager
async def publisher(url: str, **_: Any) -> AsyncIterator[_Publisher]:
    connection = await nats.connect(url, pending_size=PENDING_BYTES)
    yield _Publisher(connection)
    await connection.close()

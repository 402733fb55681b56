"""aio-pika and a fanout exchange of RabbitMQ; nothing is acknowledged or kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.roles.pubsub import Sink, nothing_between

hub = nothing_between
EXCHANGE = "bench"


async def subscribe(sink: Sink, count: int, url: str, **_: Any) -> object:
    connections = []
    for _number in range(count):
        connection = await aio_pika.connect(url)
        channel = await connection.channel()
        exchange = await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.FANOUT)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange)

        async def got(message: AbstractIncomingMessage) -> None:
            sink.got(message.body)

        await queue.consume(got, no_ack=True)
        connections.append(connection)
    return connections


class _Publisher:
    def __init__(self, exchange: Any) -> None:
        self._exchange = exchange

    async def send(self, payload: bytes) -> None:
        await self._exchange.publish(aio_pika.Message(payload), routing_key="")

    async def settle(self) -> None:
        return


@asynccontextmanager
async def publisher(url: str, **_: Any) -> AsyncIterator[_Publisher]:
    connection = await aio_pika.connect(url)
    channel = await connection.channel(publisher_confirms=False)
    yield _Publisher(await channel.declare_exchange(EXCHANGE, aio_pika.ExchangeType.FANOUT))
    await connection.close()

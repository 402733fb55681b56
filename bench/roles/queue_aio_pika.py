"""aio-pika through RabbitMQ: a durable queue, persistent messages, publisher confirms."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from bench.roles.queue import BODY, Done, Send, nothing_between

broker = nothing_between
PREFETCH = 100


async def consume(done: Done, consumers: int, url: str, name: str, **_: Any) -> object:
    connections = []
    for _number in range(consumers):
        connection = await aio_pika.connect(url)
        channel = await connection.channel()
        await channel.set_qos(PREFETCH)
        queue = await channel.declare_queue(name, durable=True)

        async def got(message: AbstractIncomingMessage) -> None:
            await message.ack()
            done.add()

        await queue.consume(got)
        connections.append(connection)
    return connections


@asynccontextmanager
async def producer(url: str, name: str, **_: Any) -> AsyncIterator[Send]:
    connection = await aio_pika.connect(url)
    channel = await connection.channel(publisher_confirms=True)

    async def send() -> int:
        await channel.default_exchange.publish(aio_pika.Message(BODY, delivery_mode=2), routing_key=name)
        return 1

    yield send
    await connection.close()

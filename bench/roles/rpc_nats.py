"""nats-py: request and reply through nats-server."""

from __future__ import annotations

import nats
from nats.aio.msg import Msg

from bench.load import obey
from bench.role import Orders
from bench.rpc import TEXT

TIMEOUT_S = 5


async def serve(orders: Orders, url: str) -> None:
    connection = await nats.connect(url)

    async def same(message: Msg) -> None:
        await message.respond(message.data)

    await connection.subscribe("same", cb=same)
    await connection.flush()
    orders.answer(subject="same")
    await orders.ended()
    await connection.close()


async def ask(orders: Orders, url: str, subject: str) -> None:
    connection = await nats.connect(url)
    data = TEXT.encode()

    async def call() -> None:
        assert (await connection.request(subject, data, timeout=TIMEOUT_S)).data == data

    orders.answer(ready=True)
    await obey(orders, call)
    await connection.close()

"""The library `websockets`: a server that sends back what it gets, and a client that numbers what it sends."""

from __future__ import annotations

import asyncio
from itertools import count

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as listen

from bench.load import obey
from bench.role import Orders
from bench.rpc import TEXT


async def _echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def serve(orders: Orders) -> None:
    async with listen(_echo, "127.0.0.1", 0, compression=None) as server:
        orders.answer(port=next(iter(server.sockets)).getsockname()[1])
        await orders.ended()


async def ask(orders: Orders, port: int) -> None:
    loop = asyncio.get_running_loop()
    async with connect(f"ws://127.0.0.1:{port}/", compression=None) as connection:
        pending: dict[str, asyncio.Future[str]] = {}
        numbers = count()

        async def read() -> None:
            async for message in connection:
                number, _, text = str(message).partition(" ")
                pending.pop(number).set_result(text)

        async def call() -> None:
            number = str(next(numbers))
            answer = pending[number] = loop.create_future()
            await connection.send(f"{number} {TEXT}")
            assert await answer == TEXT

        reading = asyncio.create_task(read())
        orders.answer(ready=True)
        await obey(orders, call)
    await reading

"""The floor: asyncio over TCP, bytes back as they came, nothing decoded, answers matched by their order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from bench.load import obey
from bench.role import Orders
from bench.rpc import TEXT

DATA = TEXT.encode()


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).write

    def data_received(self, data: bytes) -> None:
        self.write(data)


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.pending: deque[asyncio.Future[None]] = deque()
        self.received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        while self.received >= len(DATA):
            self.received -= len(DATA)
            self.pending.popleft().set_result(None)


async def serve(orders: Orders) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    orders.answer(port=server.sockets[0].getsockname()[1])
    await orders.ended()


async def ask(orders: Orders, port: int) -> None:
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(Client, "127.0.0.1", port)

    async def call() -> None:
        answer = loop.create_future()
        client.pending.append(answer)
        transport.write(DATA)
        await answer

    orders.answer(ready=True)
    await obey(orders, call)
    transport.close()

"""A reference: arrays in MessagePack with msgspec on framed TCP. One function, no errors, no timeouts."""

from __future__ import annotations

import asyncio
from itertools import count

import msgspec

from bench.load import obey
from bench.role import Orders
from bench.roles.framed import Framed
from bench.roles.rpc_picows import run_at_once, same
from bench.rpc import TEXT

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(tuple[int, str, list[str]]).decode
decode_response = msgspec.msgpack.Decoder(tuple[int, str]).decode


class Server(Framed):
    def on_frame(self, frame: bytes) -> None:
        number, _fun, arguments = decode_request(frame)
        run_at_once(same(*arguments), lambda result: self.put(encode((number, result))))


class Client(Framed):
    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[int, asyncio.Future[str]] = {}

    def on_frame(self, frame: bytes) -> None:
        number, result = decode_response(frame)
        self.pending.pop(number).set_result(result)


async def serve(orders: Orders) -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    orders.answer(port=server.sockets[0].getsockname()[1])
    await orders.ended()


async def ask(orders: Orders, port: int) -> None:
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(Client, "127.0.0.1", port)
    numbers = count()

    async def call() -> None:
        number = next(numbers)
        answer = client.pending[number] = loop.create_future()
        client.put(encode((number, "same", (TEXT,))))
        assert await answer == TEXT

    orders.answer(ready=True)
    await obey(orders, call)
    transport.close()

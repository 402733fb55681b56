"""The least that the protocol can cost: both roles on bare connections, nothing checked, nothing handled."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

from bench.load import obey
from bench.muf import DATA
from bench.role import Orders


class Bare(asyncio.Protocol):
    """Commands of one loop turn in one write, replies in order; what is pushed goes to `told`."""

    def __init__(self, told: Callable[[bytes], None] | None = None) -> None:
        self.reader = hiredis.Reader()
        self.waiting: deque[asyncio.Future[Any]] = deque()
        self.out: list[bytes] = []
        self.told = told
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while (reply := self.reader.gets()) is not False:
            if self.told is not None and isinstance(reply, list) and reply[0] == b"pmessage":
                if reply[3] == b"set":
                    self.told(reply[2].partition(b":")[2])
            elif self.waiting:
                self.waiting.popleft().set_result(reply)

    def send(self, *args: Any) -> asyncio.Future[Any]:
        if not self.out:
            self.loop.call_soon(self.flush)
        self.out.append(hiredis.pack_command(args))
        future = self.loop.create_future()
        self.waiting.append(future)
        return future

    def flush(self) -> None:
        self.transport.write(b"".join(self.out))
        self.out.clear()


async def connect(socket: str, told: Callable[[bytes], None] | None = None) -> Bare:
    _, protocol = await asyncio.get_running_loop().create_unix_connection(lambda: Bare(told), socket)
    return protocol


async def serve(orders: Orders, url: str, socket: str) -> None:
    commands = await connect(socket)

    def told(key: bytes) -> None:
        commands.send(b"GET", key).add_done_callback(
            lambda got: commands.send(b"SET", key.replace(b"/REQ/", b"/RES/"), got.result(), b"EX", 30)
        )

    events = await connect(socket, told)
    await commands.send(b"CONFIG", b"SET", b"notify-keyspace-events", b"K$")
    await events.send(b"PSUBSCRIBE", b"__keyspace@0__:MUF/*/REQ/*")
    orders.answer(ready=True)
    await orders.ended()


async def ask(orders: Orders, url: str, socket: str) -> None:
    commands = await connect(socket)
    calls: dict[bytes, asyncio.Future[Any]] = {}

    def told(key: bytes) -> None:
        commands.send(b"GET", key).add_done_callback(lambda got: calls.pop(key).set_result(got.result()))

    events = await connect(socket, told)
    await events.send(b"PSUBSCRIBE", b"__keyspace@0__:MUF/FRONTEND/RES/*")
    number = 0
    loop = asyncio.get_running_loop()

    async def call() -> None:
        nonlocal number
        number += 1
        answer = calls[b"MUF/FRONTEND/RES/%d" % number] = loop.create_future()
        commands.send(b"SET", b"MUF/FRONTEND/REQ/%d" % number, DATA, b"EX", 10)
        assert await answer == DATA

    orders.answer(ready=True)
    await obey(orders, call)

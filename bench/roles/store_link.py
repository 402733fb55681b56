"""A reference: one connection that all callers share, one write a turn, hiredis on both ways, and nothing else."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import hiredis

from bench.role import Orders
from bench.roles.store import serve


class Bare(asyncio.Protocol):
    def __init__(self) -> None:
        self.reader = hiredis.Reader()
        self.pending: deque[asyncio.Future[Any]] = deque()
        self.out: list[bytes] = []
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance here: uvloop's transports are no subclass of asyncio's.
        self.write = cast(asyncio.Transport, transport).write

    def send(self, *args: str | bytes) -> asyncio.Future[Any]:
        if not self.out:
            self.loop.call_soon(self.flush)
        self.out.append(hiredis.pack_command(args))
        future = self.loop.create_future()
        self.pending.append(future)
        return future

    def flush(self) -> None:
        self.write(b"".join(self.out))
        self.out.clear()

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while (reply := self.reader.gets()) is not False:
            self.pending.popleft().set_result(reply)


async def calls(orders: Orders, url: str, path: str) -> None:
    _, link = await asyncio.get_running_loop().create_unix_connection(Bare, path)
    await serve(orders, lambda key: link.send("GET", key), lambda key, value: link.send("SET", key, value))

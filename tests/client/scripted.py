"""A node that answers as a test says: the far end of a client's link, without sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

from mpreg.errors import MpregError
from mpreg.transport import Accept, Link, memory_pair
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import error_body, error_response
from mpreg.wire.message import Message
from mpreg.wire.rpc import Rpc, RpcResponse


class Scripted:
    """`attach` is what `connect` calls. `links` are the far ends, in the order in which they were made."""

    def __init__(self) -> None:
        self.links: list[FarEnd] = []
        self.refusing = False
        self._attached = asyncio.Event()

    def attach(self, accept: Accept) -> Link:
        if self.refusing:
            raise RuntimeError("not now")
        end = FarEnd()
        near, end.link = memory_pair(accept, lambda link: end)
        self.links.append(end)
        self._attached.set()
        return near

    async def attached(self, count: int) -> FarEnd:
        """The link of this number, once it is there."""
        while len(self.links) < count:
            self._attached.clear()
            await self._attached.wait()
        return self.links[count - 1]


class FarEnd:
    link: Link

    def __init__(self) -> None:
        self._received: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self.closed = asyncio.Event()

    async def receive(self) -> Any:
        while not self._received:
            self._arrived.clear()
            await self._arrived.wait()
        return self._received.popleft()

    @property
    def unread(self) -> int:
        return len(self._received)

    def send(self, message: Message) -> None:
        self.link.send(codec.encode(message, Encoding.MSGPACK), Encoding.MSGPACK)

    def answer(self, request: Rpc, result: Any) -> None:
        self.send(RpcResponse(request.u, msgspec.Raw(msgspec.msgpack.encode(result))))

    def fail(self, request: Rpc, error: MpregError) -> None:
        self.send(RpcResponse(request.u, codec.NULL[Encoding.MSGPACK], error_body(error)))

    def fail_with_error_response(self, u: str, error: MpregError) -> None:
        self.send(error_response(error, u))

    # The contract of a link's handler.

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        self._received.append(codec.decode(message, encoding))
        self._arrived.set()

    def on_refused(self, link: Link, error: MpregError) -> None:
        raise AssertionError(error)

    def on_closed(self, link: Link, error: MpregError | None) -> None:
        self.closed.set()

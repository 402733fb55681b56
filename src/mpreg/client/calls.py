"""One question to a node, from the moment it is asked to the moment nobody waits for its answer."""

from __future__ import annotations

from asyncio import Future
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from mpreg.errors import MpregError, ResourceError, TimedOut
from mpreg.wire.encoding import MSGPACK, Encoding
from mpreg.wire.message import Message

if TYPE_CHECKING:
    from mpreg.client.connection import Connection


class Call(msgspec.Struct, eq=False):
    """A message with a `u` of its own, and the future of the message that answers it."""

    u: str
    data: bytes
    future: Future[Message]
    timeout_s: float
    expires: float
    is_rpc: bool
    connection: Connection | None = None
    """The one that it was sent on; None while it waits to be sent."""
    encoding: Encoding = MSGPACK
    """Of the answer, once it is there."""

    def answer(self, message: Message, encoding: Encoding) -> None:
        if not self.future.done():
            self.encoding = encoding
            self.future.set_result(message)

    def fail(self, error: MpregError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        sent = self.connection is not None
        what = "No answer" if sent else "No connection to a node"
        self.fail(
            TimedOut(
                "TIMEOUT_EXCEEDED",
                f"{what} within {self.timeout_s:g} s",
                timeout_ms=self.timeout_s * 1e3,
                state_changed=None if sent else False,
            )
        )


class Waiting:
    """Calls that can't be sent yet, first come first served. Past the limit the next is refused."""

    def __init__(self, calls_max: int, bytes_max: int) -> None:
        self.queue: OrderedDict[Call, None] = OrderedDict()
        self._calls_max = calls_max
        self._bytes_max = bytes_max
        self._bytes = 0

    def add(self, call: Call) -> None:
        """Raises `RESOURCE_EXHAUSTED`."""
        if len(self.queue) >= self._calls_max or self._bytes + len(call.data) > self._bytes_max:
            raise ResourceError(
                "RESOURCE_EXHAUSTED",
                f"{len(self.queue)} calls of {self._bytes} bytes wait to be sent; "
                f"the limits are {self._calls_max} calls and {self._bytes_max} bytes",
                limit=self._calls_max,
                limit_bytes=self._bytes_max,
            )
        self.queue[call] = None
        self._bytes += len(call.data)

    def put_back(self, call: Call) -> None:
        """One that was sent, but surely not started. It goes first, limit or not: it was let in before."""
        self.queue[call] = None
        self.queue.move_to_end(call, last=False)
        self._bytes += len(call.data)

    def take(self) -> Call:
        call, _ = self.queue.popitem(last=False)
        self._bytes -= len(call.data)
        return call

    def discard(self, call: Call) -> None:
        if call in self.queue:
            del self.queue[call]
            self._bytes -= len(call.data)

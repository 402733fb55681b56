"""Two ends of a link within one process and one event loop, with the contract of a real one: messages arrive in a
later turn of the loop, whole and in order, limits hold, and `waiting` counts what the other end has not taken."""

from __future__ import annotations

import asyncio
from collections import deque

from mpreg.errors import MpregError, ResourceError
from mpreg.transport.link import LinkHandler
from mpreg.transport.listener import Accept
from mpreg.transport.peer import Peer
from mpreg.transport.socket_link import too_large
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT, Limits

_PEER = Peer("memory:")


class MemoryLink:
    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self.limits = limits
        self.waiting = 0
        self.closed = False
        self.other: MemoryLink
        self.handler: LinkHandler | None = None
        self._loop = loop
        self._out: deque[tuple[bytes, Encoding]] = deque()
        self._scheduled = False
        self._reading = True
        self._error: MpregError | None = None
        self._gone = loop.create_future()

    @property
    def url(self) -> str:
        return _PEER.url

    @property
    def peer(self) -> Peer:
        return _PEER

    @property
    def takes_more(self) -> bool:
        return not self.closed and self.waiting <= self.limits.waiting_bytes_max // 2

    def send(self, message: bytes, encoding: Encoding) -> None:
        if self.closed:
            return
        size = len(message)
        if size > self.limits.message_bytes_max:
            raise too_large(size, self.limits.message_bytes_max)
        limit = self.limits.waiting_bytes_max
        if self._out and self.waiting + size > limit:
            self._end(
                ResourceError(
                    "RESOURCE_SLOW_CONSUMER",
                    f"{self.waiting + size} bytes wait to be read by the peer; the limit is {limit}",
                    limit="waiting_bytes_max",
                    waiting_bytes_max=limit,
                )
            )
            return
        self._out.append((message, encoding))
        self.waiting += size
        self._schedule()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.other._schedule()

    def restrict(self, limits: Limits) -> None:
        self.limits = limits

    def divert(self, handler: LinkHandler) -> None:
        self.handler = handler

    def close(self, error: MpregError | None = None) -> None:
        if not self.closed:
            self.closed = True
            self._error = error
            self.resume_reading()
            self._schedule()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._gone)

    def __repr__(self) -> str:
        return f"<MemoryLink{' closed' if self.closed else ''}>"

    def _schedule(self) -> None:
        if not self._scheduled and not self._gone.done():
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """What was sent up to now; what is sent meanwhile comes in the next turn."""
        self._scheduled = False
        other = self.other
        for _ in range(len(self._out)):
            if self._gone.done() or not (other._reading or other.closed):
                return
            message, encoding = self._out.popleft()
            self.waiting -= len(message)
            if not other.closed and other.handler is not None:
                other.handler.on_message(other, message, encoding)
        if self._out:
            self._schedule()
        elif self.closed:
            self._end(self._error)

    def _end(self, error: MpregError | None) -> None:
        """Both ends are gone; the other one in good order, as far as it knows."""
        for end, reason in ((self, error), (self.other, self.other._error)):
            if not end._gone.done():
                end.closed = True
                end._out.clear()
                end.waiting = 0
                end._gone.set_result(None)
                self._loop.call_soon(end._tell, reason)

    def _tell(self, error: MpregError | None) -> None:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.on_closed(self, error)


def memory_pair(accept_a: Accept, accept_b: Accept, *, limits: Limits = CLIENT) -> tuple[MemoryLink, MemoryLink]:
    """The first link's handler is made by `accept_a`, the second one's by `accept_b`."""
    loop = asyncio.get_running_loop()
    a, b = MemoryLink(loop, limits), MemoryLink(loop, limits)
    a.other, b.other = b, a
    a.handler = accept_a(a)
    b.handler = accept_b(b)
    return a, b

"""The half of a link that is the same over WebSocket and TCP: what leaves, in which order, and how a link ends.

What `send` accepts during one turn of the event loop leaves together: at the end of a read for answers given at once,
else by one callback, and whenever a batch of it is complete. What the operating system does not take stays here,
bounded, and long messages are cut into pieces only when there is room to write them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

from mpreg.errors import MpregError, ResourceError, TransportError
from mpreg.transport.framing import Framing
from mpreg.transport.heartbeat import Beat, Heartbeat
from mpreg.transport.link import LinkHandler
from mpreg.transport.peer import Peer
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import Limits

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 256 * 1024
"""Joined into one write at most; also what the event loop may buffer before it asks for a pause."""
WHOLE_BYTES_MAX: Final = 64 * 1024
"""A message up to this is copied behind its header; a longer one is not copied."""
BUSY_S: Final = 0.00003
"""A link that was written to within this time is written to again only at the end of the turn: as long as the reads of
one turn follow each other, not as long as a call takes, or one call after another would wait for a turn each time."""
CLOSE_S: Final = 5.0
"""For the peer to take what was still waiting and to say goodbye; then the socket is cut."""
LINGER_S: Final = 1.0
"""A peer whose framing is lost is read and dropped this long, so that it can learn why: a socket that is closed
with unread bytes takes back what was just written."""


class Reading:
    """Of one event loop: is a link being read, and which other links were sent something meanwhile?"""

    __slots__ = ("active", "others")

    def __init__(self) -> None:
        self.active = False
        self.others: list[SocketLink] = []

    def end(self) -> None:
        self.active = False
        if self.others:
            others, self.others = self.others, []
            for link in others:
                link.flush_soon()


def reading_of(loop: asyncio.AbstractEventLoop) -> Reading:
    found = _READINGS.get(loop)
    if found is None:
        found = _READINGS[loop] = Reading()
    return found


_READINGS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Reading]] = WeakKeyDictionary()


class _Nobody:
    def on_message(self, *_: object) -> None: ...

    on_refused = on_closed = on_message


_NOBODY: Final = _Nobody()


class _Long:
    """A long message on its way out."""

    __slots__ = ("left", "pieces")

    def __init__(self, pieces: Iterator[bytes | memoryview], size: int) -> None:
        self.pieces = pieces
        self.left = size


class SocketLink:
    """Owned by the protocol that reads the socket, which sets `heard`, brackets a read by `turn` and `flush`, and
    says `peer_left`, `fail` and `lost`."""

    __slots__ = (
        "_batch",
        "_close_timer",
        "_error",
        "_flushed_at",
        "_frame",
        "_framing",
        "_gone",
        "_half_room",
        "_heartbeat",
        "_limits",
        "_longs",
        "_loop",
        "_out",
        "_paused",
        "_peer_left",
        "_ping_timer",
        "_queued",
        "_reading_paused",
        "_room",
        "_transport",
        "_waited",
        "_waiters",
        "_whole_max",
        "closing",
        "handler",
        "heard",
        "lingering",
        "peer",
        "reading",
        "restricted",
        "turn",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        framing: Framing,
        peer: Peer,
        limits: Limits,
    ) -> None:
        self.closing = False
        """Nothing is accepted or delivered any more."""
        self.heard = True
        """Something came since the last heartbeat."""
        self.lingering = False
        """Framing is lost: what still comes is dropped."""
        self.turn = False
        """A flush is on its way: a read is being handled, or a callback is scheduled."""
        self.reading = reading_of(loop)
        self._loop = loop
        self._flushed_at = 0.0
        self._transport = transport
        self._framing = framing
        self._frame = framing.frame
        self.peer = peer
        self._limits = limits
        self.handler: LinkHandler = _NOBODY
        """Whoever the protocol tells of messages; nobody before the link is open and after it is lost."""
        self._out: deque[bytes | _Long] = deque()
        self._queued = 0
        self._longs = 0
        self._paused = False
        self._reading_paused = False
        self.restricted: Callable[[Limits], None] | None = None
        """Tells the reader of other limits."""
        self._measure(limits)
        self._waited = 0
        self._error: MpregError | None = None
        self._peer_left = False
        self._gone = False
        self._waiters: list[asyncio.Future[None]] = []
        self._heartbeat = Heartbeat()
        self._ping_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(high=BATCH_BYTES)

    # The contract of a link.

    @property
    def url(self) -> str:
        return self.peer.url

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def waiting(self) -> int:
        return self._queued + self._transport.get_write_buffer_size()

    @property
    def closed(self) -> bool:
        return self.closing

    @property
    def takes_more(self) -> bool:
        if self.closing:
            return False
        return self._queued <= self._half_room or self.waiting <= self._limits.waiting_bytes_max // 2

    def send(self, message: bytes, encoding: Encoding) -> None:
        if self.closing:
            return
        size = len(message)
        if size <= self._whole_max:
            frame = self._frame(message, encoding)
            size = len(frame)
            self._out.append(frame)
        else:
            if size > self._limits.message_bytes_max:
                raise too_large(size, self._limits.message_bytes_max)
            self._out.append(_Long(self._framing.pieces(message, encoding), size))
            self._longs += 1
        self._queued += size
        if self._queued > self._room:
            self._check_waiting(size)
        if not self.turn:
            self.turn = True
            if self.reading.active:
                self.reading.others.append(self)
            else:
                self._loop.call_soon(self.flush)
        elif len(self._out) == self._batch:
            self._write()

    def pause_reading(self) -> None:
        if not self._reading_paused and not self._gone and not self._transport.is_closing():
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self.heard = True
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def restrict(self, limits: Limits) -> None:
        self._limits = limits
        self._measure(limits)
        self._framing.restrict(limits)
        if self.restricted is not None:
            self.restricted(limits)

    def divert(self, handler: LinkHandler) -> None:
        self.handler = handler

    def close(self, error: MpregError | None = None) -> None:
        if not self.closing:
            self._error = error
            self._leave(error, CLOSE_S)

    async def wait_closed(self) -> None:
        if not self._gone:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    # For the protocol that owns the link.

    def open(self, handler: LinkHandler) -> None:
        """From here on the handler hears of everything."""
        self.handler = handler
        if not self.closing:
            self._ping_timer = self._loop.call_later(self._limits.ping_interval_s, self._beat)

    def control(self, frame: bytes) -> None:
        """A frame of the framing itself, behind what waits."""
        self._out.append(frame)
        self._queued += len(frame)
        if self._queued > self._room:
            self._check_waiting(len(frame))
        self._schedule()

    def flush(self) -> None:
        self.turn = False
        if self._out:
            self._write()
        if self.closing and not self._out:
            self._drained()

    def flush_soon(self) -> None:
        """At the end of the read of another link: at once, unless this link was just written to. Then there is much to
        do, and what other reads of this turn send here can leave in the same write."""
        now = monotonic()
        if now - self._flushed_at < BUSY_S:
            self._loop.call_soon(self.flush)
        else:
            self._flushed_at = now
            self.flush()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def refuse(self, error: MpregError) -> None:
        """A message was dropped; the link goes on."""
        if not self.closing:
            self.handler.on_refused(self, error)

    def fail(self, error: MpregError) -> None:
        """Framing is lost: say why, and read no more sense into what comes."""
        if self.closing:
            self.peer_left()
            return
        self.refuse(error)
        if not self.closing:
            self.lingering = True
            self._error = error
            self._leave(error, LINGER_S)

    def peer_left(self, error: MpregError | None = None) -> None:
        """The peer has sent its last message; `error` if it did not leave in good order."""
        self._peer_left = True
        if not self.closing:
            self._error = error
            self._leave(error, CLOSE_S)
        else:
            self._schedule()

    def lost(self, error: MpregError | None) -> None:
        """The socket is gone. `error`: what that means if nothing else was known before."""
        self._gone = True
        if not self.closing and self._error is None:
            self._error = error
        self.closing = True
        self._out.clear()
        self._queued = self._longs = 0
        for timer in (self._ping_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        handler, self.handler = self.handler, _NOBODY
        try:
            handler.on_closed(self, self._error)
        except Exception:
            log.exception("%s: the end of a link could not be handled", self.url)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def cut(self, error: MpregError) -> None:
        """Close without another word."""
        if not self._gone:
            self.closing = True
            self._error = error
            self._transport.abort()

    def __repr__(self) -> str:
        return f"<SocketLink {self.url}{' closing' if self.closing else ''}>"

    # How it is done.

    def _measure(self, limits: Limits) -> None:
        # The event loop holds at most two batches, so only past this it needs to be asked how much.
        self._room = max(0, limits.waiting_bytes_max - 2 * BATCH_BYTES - WHOLE_BYTES_MAX)
        self._half_room = max(0, limits.waiting_bytes_max // 2 - 2 * BATCH_BYTES - WHOLE_BYTES_MAX)
        self._batch = limits.batch_messages
        self._whole_max = min(WHOLE_BYTES_MAX, limits.frame_bytes_max, limits.message_bytes_max)

    def _schedule(self) -> None:
        if not self.turn:
            self.turn = True
            self._loop.call_soon(self.flush)

    def _write(self) -> None:
        if self._paused:
            return
        if self._queued > BATCH_BYTES or self._longs:
            self._write_in_batches()
            return
        out = self._out
        data = out[0] if len(out) == 1 else b"".join(out)  # type: ignore[arg-type]  # no _Long is among them
        out.clear()
        self._queued = 0
        self._transport.write(data)  # type: ignore[arg-type]

    def _write_in_batches(self) -> None:
        out = self._out
        while out and not self._paused and not self._transport.is_closing():
            batch: list[bytes | memoryview] = []
            size = 0
            while out and size < BATCH_BYTES:
                first = out[0]
                if isinstance(first, _Long):
                    piece = next(first.pieces, None)
                    if piece is None:
                        out.popleft()
                        self._longs -= 1
                        self._queued -= first.left
                        continue
                    taken = min(first.left, len(piece))
                    first.left -= taken
                    self._queued -= taken
                else:
                    piece = first
                    out.popleft()
                    self._queued -= len(piece)
                batch.append(piece)
                size += len(piece)
            if batch:
                self._transport.write(batch[0] if len(batch) == 1 else b"".join(batch))

    def _check_waiting(self, size: int) -> None:
        """`size` was just added. One message alone may be as long as it likes; a heap of them may not."""
        waiting = self.waiting
        limit = self._limits.waiting_bytes_max
        if waiting > limit and waiting > size:
            self.cut(
                ResourceError(
                    "RESOURCE_SLOW_CONSUMER",
                    f"{waiting} bytes wait to be read by the peer; the limit is {limit}",
                    limit="waiting_bytes_max",
                    waiting_bytes_max=limit,
                )
            )

    def _leave(self, error: MpregError | None, patience_s: float) -> None:
        goodbye = self._framing.goodbye(error)
        if goodbye:
            self._out.append(goodbye)
            self._queued += len(goodbye)
        self.closing = True
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._close_timer = self._loop.call_later(patience_s, self._give_up)
        if self._reading_paused:
            self.resume_reading()  # or the peer's own goodbye would never be seen
        self._schedule()

    def _drained(self) -> None:
        """This side has written its last."""
        if self._gone:
            return
        if self.lingering:
            if self._transport.can_write_eof() and not self._transport.is_closing():
                self._transport.write_eof()
        elif self._peer_left or not self._framing.waits_for_peer:
            self._transport.close()

    def _give_up(self) -> None:
        if not self._gone:
            self._transport.abort()

    def _beat(self) -> None:
        waiting = self.waiting
        alive = self.heard or self._reading_paused or waiting < self._waited
        self.heard = False
        self._waited = waiting
        if self._heartbeat.step(alive) is Beat.LOST:
            self.cut(
                TransportError(
                    "TRANSPORT_CONNECTION_LOST", f"{self.url} answered neither of two pings", state_changed=None
                )
            )
        else:
            self._ping_timer = self._loop.call_later(self._limits.ping_interval_s, self._beat)
            self.control(self._framing.ping())


def too_large(size: int, limit: int) -> ResourceError:
    return ResourceError(
        "RESOURCE_MESSAGE_TOO_LARGE",
        f"A message of {size} bytes; the limit is {limit}",
        limit="message_bytes_max",
        message_bytes_max=limit,
    )

"""One connection to one server for as long as it lives: many callers share it, and each gets its own reply.

Commands of one turn of the event loop leave in one write; the server answers in order, so the oldest future in
`pending` owns the next reply. A caller that is cancelled leaves its future behind: the reply is taken from the stream
all the same and dropped, so nobody ever reads what belongs to someone else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, Protocol, TypeAlias, cast

import hiredis

from mpreg.errors import StoreError
from mpreg.store.limits import StoreLimits
from mpreg.store.replies import StoreReplyError, reply_error

Argument: TypeAlias = bytes | str | int | float | memoryview
Pending: TypeAlias = "tuple[asyncio.Future[Any], bytes]"

_NOTHING = object()
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
_WRITE_BUFFER_BYTES = 1024 * 1024
REPLIES_A_TURN: Final = 16
"""At least so many callers are told in a turn of the loop, if there are so many replies."""
PARTS: Final = 4
"""And at least so large a part of those who wait."""
ALL: Final = 1 << 30
_CONFIRMATIONS = frozenset(
    {b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe"}
)
_RESP2_PUSHES = _CONFIRMATIONS | {b"message", b"pmessage", b"smessage"}


class LinkOwner(Protocol):
    """What a link tells. All calls come from the event loop; `on_lost` is the last and comes once."""

    def on_error_reply(self, link: Link, error: StoreReplyError, pending: Pending) -> bool:
        """True if the owner takes care of the caller, for instance by repeating the command elsewhere."""

    def on_push(self, link: Link, push: list[Any]) -> None: ...

    def on_room(self) -> None:
        """Replies came or bytes left: there is room for commands again."""

    def on_lost(self, link: Link, error: StoreError, unsent: list[Pending]) -> None:
        """The connection is gone. `unsent` never reached it; callers of all others have been told `error`."""


def pack(args: tuple[Any, ...]) -> bytes:
    """The bytes of one command, or STORE_INVALID_COMMAND."""
    try:
        if args:
            return hiredis.pack_command(args)  # type: ignore[no-any-return]
        why = "it is empty"
    except TypeError:
        n = next((n for n, x in enumerate(args) if isinstance(x, bool) or not isinstance(x, Argument)), 0)
        why = f"argument {n} is a {type(args[n]).__name__}, not bytes, str, int or float"
    except UnicodeEncodeError:
        why = "a str argument has a lone surrogate"
    raise StoreError("STORE_INVALID_COMMAND", f"the command can't be sent: {why}")


def unpack(data: bytes) -> list[bytes]:
    """The arguments of a packed command; the way back from `pack`, for the rare command that must be sent twice."""
    reader = hiredis.Reader()
    reader.feed(data)
    args: list[bytes] = reader.gets()
    return args


def silence(future: asyncio.Future[Any]) -> None:
    """For a command whose reply nobody reads: its failure must not be logged as forgotten."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


class Link(asyncio.Protocol):
    def __init__(self, owner: LinkOwner, limits: StoreLimits, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._limits = limits
        self._loop = loop
        self._create_future = loop.create_future
        self._call_soon = loop.call_soon
        self._reader = hiredis.Reader(replyError=reply_error, notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self._pending: deque[Pending] = deque()
        self._pending_max = limits.pending_commands_max
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._out_bytes_max = limits.unsent_bytes_max
        self._paused = False
        self._slice: asyncio.Handle | None = None
        self._start_of_data = b""
        self._heard = False
        self._owed = False
        self._beat: asyncio.TimerHandle | None = None
        self._lost: StoreError | None = None
        self.pushes_are_lists = False
        """RESP2: what is pushed to a subscriber looks like any list."""
        self.closed = loop.create_future()

    # --- commands -----------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Commands without a reply."""
        return len(self._pending)

    def send(self, *args: Argument) -> asyncio.Future[Any]:
        return self.put(pack(args), self._create_future())

    def put(self, data: bytes, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Queue a packed command. Raises what is wrong here and now; all else comes through the future."""
        pending = self._pending
        if len(pending) >= self._pending_max or self._out_bytes >= self._out_bytes_max:
            raise StoreError(
                "STORE_BUSY",
                f"{len(pending)} commands wait for the store, {self._out_bytes} bytes are unsent",
                commands=len(pending),
                unsent_bytes=self._out_bytes,
            )
        if self._lost is not None:
            future.set_exception(_copy(self._lost, state_changed=False))
            return future
        out = self._out
        if not out:
            self._call_soon(self._flush)
        out.append(data)
        self._out_bytes += len(data)
        pending.append((future, data))
        return future

    def again(self, data: bytes, future: asyncio.Future[Any]) -> None:
        """As `put`, for a command that was accepted once: no limit turns it away, and nothing is raised."""
        if self._lost is not None:
            if not future.done():
                future.set_exception(_copy(self._lost, state_changed=False))
            return
        if not self._out:
            self._call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)
        self._pending.append((future, data))

    def _flush(self) -> None:
        out = self._out
        if self._paused or not out or self._transport is None or self._lost is not None:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        was_full = self._out_bytes >= self._out_bytes_max
        self._out_bytes = 0
        self._transport.write(data)
        if was_full:
            self._owner.on_room()

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance here: uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._flush()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._lost is not None:
            return
        self._heard = True
        self._start_of_data = data[:2]
        self._reader.feed(data)
        if self._slice is None:
            waiting = len(self._pending)
            self._read(max(REPLIES_A_TURN, waiting // PARTS) if waiting > REPLIES_A_TURN else ALL)

    def _read(self, most: int) -> None:
        """Not all replies of a full pipeline in one turn: so the server has new commands while the last callers are
        still being told, and the two do not wait for each other in turns.
        """
        self._slice = None
        pending = self._pending
        was_full = len(pending) >= self._pending_max
        gets = self._reader.gets
        try:
            for _ in range(most):
                reply = gets()
                kind = type(reply)
                if kind is bytes or kind is int:
                    future, _data = pending.popleft()
                    if not future.done():
                        future.set_result(reply)
                elif reply is _NOTHING:
                    break
                else:
                    self._other_reply(reply)
            else:
                self._slice = self._call_soon(self._read, most)
        except (hiredis.ProtocolError, IndexError, TypeError):
            self._framing_lost()
        if was_full:
            self._owner.on_room()

    def _other_reply(self, reply: Any) -> None:
        if isinstance(reply, hiredis.PushNotification) or (
            self.pushes_are_lists and isinstance(reply, list) and reply and reply[0] in _RESP2_PUSHES
        ):
            self._push(reply)
            return
        if not self._pending and isinstance(reply, StoreReplyError):
            # Said before it was asked anything: it has no room for us, or does not talk to strangers.
            self.lose(StoreError(reply.code if reply.code != "STORE_REPLY" else "STORE_UNAVAILABLE", reply.message))
            return
        pending = self._pending.popleft()
        future = pending[0]
        if future.done():
            return
        if not isinstance(reply, StoreReplyError):
            future.set_result(reply)
        elif not self._owner.on_error_reply(self, reply, pending):
            future.set_exception(reply)

    def _push(self, push: list[Any]) -> None:
        """The answer to SUBSCRIBE and its kin is a push too: it is the caller's if the oldest command asks for just
        this. (A server also says `sunsubscribe` unasked, when a slot leaves.)"""
        if push[0] in _CONFIRMATIONS and self._pending and self._pending[0][1] == pack((push[0].upper(), push[1])):
            future, _ = self._pending.popleft()
            if not future.done():
                future.set_result(push)
            return
        self._owner.on_push(self, push)

    def _framing_lost(self) -> None:
        if self._start_of_data.startswith(_TLS_RECORDS):
            self.lose(StoreError("STORE_TLS", "this port speaks TLS; use the scheme valkeys:// instead"))
        else:
            self.lose(StoreError("STORE_PROTOCOL", "what answers there is not a Valkey or Redis server"))

    def connection_lost(self, exc: Exception | None) -> None:
        while self._slice is not None:  # what came before the end is told
            self._slice.cancel()
            self._read(ALL)
        why = "the server closed the connection" if exc is None else f"the connection broke: {type(exc).__name__}"
        self.lose(StoreError("STORE_CONNECTION_LOST", why))
        if not self.closed.done():
            self.closed.set_result(None)

    # --- the end ------------------------------------------------------------------------------------------------

    def lose(self, error: StoreError) -> None:
        """End the connection at once. Callers whose command may have run learn that nobody knows."""
        if self._lost is not None:
            return
        self._lost = error
        if self._slice is not None:
            self._slice.cancel()
        if self._beat is not None:
            self._beat.cancel()
        unsent = [self._pending.pop() for _ in self._out]
        unsent.reverse()
        self._out.clear()
        self._out_bytes = 0
        written, self._pending = self._pending, deque()
        if self._transport is None:
            self.closed.set_result(None)
        else:
            self._transport.abort()
        for future, _ in written:
            if not future.done():
                future.set_exception(_copy(error, state_changed=None))
        self._owner.on_lost(self, error, unsent)

    def start_beat(self) -> None:
        self._beat = self._loop.call_later(self._limits.beat_s, self._on_beat)

    def _on_beat(self) -> None:
        if self._owed and not self._heard:
            seconds = self._limits.beat_s
            self.lose(
                StoreError("STORE_CONNECTION_LOST", f"the server owes a reply and said nothing for {seconds:g} s")
            )
            return
        if not self._pending:
            silence(self.send(b"PING"))
        self._owed = True
        self._heard = False
        self.start_beat()


def _copy(error: StoreError, *, state_changed: bool | None) -> StoreError:
    """One exception a caller: a shared one would collect every caller's traceback."""
    return StoreError(error.code, error.message, state_changed=state_changed, **error.details)

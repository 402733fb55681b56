"""One link to a node as the client sees it: answers find who asked, everything else finds its handler."""

from __future__ import annotations

import logging
from asyncio import Event
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mpreg.client.calls import Call
from mpreg.errors import MpregError, TransportError
from mpreg.transport import Link
from mpreg.wire import codec
from mpreg.wire.encoding import JSON, Encoding
from mpreg.wire.error import ErrorResponse
from mpreg.wire.lifecycle import Goodbye
from mpreg.wire.message import Message, u_of
from mpreg.wire.rpc import RpcCancel, RpcResponse

log = logging.getLogger(__name__)

Handler = Callable[[Any, Encoding], None]
"""Takes a message that nobody asked for, and the encoding of what is raw in it."""


class Owner(Protocol):
    """What a connection tells."""

    @property
    def handlers(self) -> Mapping[type[Message], Handler]: ...

    @property
    def queue(self) -> Mapping[Call, None]:
        """The calls that wait for room."""

    def has_room(self) -> None:
        """One call less is open on a connection that takes new ones."""

    def turned_away(self, call: Call) -> None:
        """The node has refused this call because it stops."""

    def leaving(self, connection: Connection) -> None:
        """No new call should be sent there."""

    def ended(self, connection: Connection) -> None: ...


class Connection:
    """`gone` is set once no new call should be sent here: the node takes leave, or the link is closed."""

    __slots__ = ("_leaving", "_owner", "_queue", "gone", "link", "open")

    def __init__(self, link: Link, owner: Owner) -> None:
        self.link = link
        self.open: dict[str, Call] = {}
        self.gone = Event()
        self._owner = owner
        self._queue = owner.queue
        self._leaving = False

    def send(self, call: Call, encoding: Encoding) -> None:
        """Raises `RESOURCE_MESSAGE_TOO_LARGE`."""
        call.connection = self
        self.open[call.u] = call
        try:
            self.link.send(call.data, encoding)
        except MpregError:
            del self.open[call.u]
            raise

    def abandon(self, call: Call, encoding: Encoding) -> None:
        """Nobody waits for this answer any more, so the node need not work for it (R-R7)."""
        if self.open.pop(call.u, None) is not None:
            if call.is_rpc:
                self.link.send(codec.encode(RpcCancel(call.u), encoding), encoding)
            self._on_answered()

    def leave(self) -> None:
        """What is open here may finish; then the link is closed."""
        self._leaving = True
        self.gone.set()
        self._owner.leaving(self)
        self._on_answered()

    # The contract of a link's handler.

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        try:
            decoded = (codec.decode_json if encoding is JSON else codec.decode_msgpack)(message)
        except MpregError as error:
            self._unreadable(message, encoding, error)
            return
        if decoded.__class__ is not RpcResponse:
            self._dispatch(decoded, encoding)
            return
        call = self.open.pop(decoded.u, None)
        if call is None:
            return
        if decoded.error is not None and _is_turned_away(decoded):
            self.leave()
            self._owner.turned_away(call)
        elif not call.future.done():
            call.encoding = encoding
            call.future.set_result(decoded)
        if self._queue or self._leaving:
            self._on_answered()

    def on_refused(self, link: Link, error: MpregError) -> None:
        log.warning("%s: an answer was dropped: %s", link.url, error)

    def on_closed(self, link: Link, error: MpregError | None) -> None:
        calls = list(self.open.values())
        self.open.clear()
        for call in calls:
            call.fail(_lost(link.url, error))
        self._leaving = True
        self.gone.set()
        self._owner.ended(self)

    # Everything but the answers of functions.

    def _dispatch(self, message: Message, encoding: Encoding) -> None:
        if isinstance(message, Goodbye):
            self.leave()
            return
        handler = self._owner.handlers.get(message.__class__)
        if handler is not None:
            try:
                handler(message, encoding)
            except Exception:
                log.exception("The handler of %s failed", type(message).__name__)
            return
        call = self.open.pop(u_of(message) or "", None)
        if call is not None:
            call.answer(message, encoding)
            self._on_answered()
        elif isinstance(message, ErrorResponse):
            log.warning("%s: %s [%s]", self.link.url, message.error.message, message.error.code)

    def _unreadable(self, message: bytes, encoding: Encoding, error: MpregError) -> None:
        call = self.open.pop(codec.read_u(message, encoding) or "", None)
        if call is None:
            log.warning("%s: a message can't be read: %s", self.link.url, error)
        else:
            error.state_changed = None
            call.fail(error)
            self._on_answered()

    def _on_answered(self) -> None:
        if not self._leaving:
            self._owner.has_room()
        elif not self.open:
            self.link.close()


def _is_turned_away(response: RpcResponse) -> bool:
    """The node stops and did not start this call, so another node may have it (R-R5)."""
    error = response.error
    return error is not None and error.code == "RESOURCE_SHUTTING_DOWN" and error.state_changed is False


def _lost(url: str, cause: MpregError | None) -> TransportError:
    why = "the node closed it" if cause is None else str(cause)
    return TransportError(
        "TRANSPORT_CONNECTION_LOST",
        f"The link to {url} ended before the answer came: {why}",
        url=url,
        state_changed=None,
    )

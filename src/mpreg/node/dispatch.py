"""From a message to the one service method that answers it, by the class of the message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from mpreg.errors import MpregError, ProtocolError, ResourceError
from mpreg.transport import Link, LinkHandler
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import JSON, Encoding
from mpreg.wire.error import error_response
from mpreg.wire.lifecycle import Goodbye
from mpreg.wire.message import Message, u_of

log = logging.getLogger(__name__)

Handler = Callable[[Session, Any, Encoding], None]
Handlers = Mapping[type[Message], Handler]


class Dispatch:
    """The table, and the sessions whose messages go through it."""

    def __init__(self, connections_max: int) -> None:
        self.sessions: set[Session] = set()
        self.refused = 0
        self._connections_max = connections_max
        self._handlers: dict[type[Message], Handler] = {}
        self._on_closed: list[Callable[[Session], None]] = []
        self._connections: set[_Connection] = set()

    def add(self, handlers: Handlers, closed: Callable[[Session], None] | None) -> None:
        """A service: what it handles, and what it wants called when a session ends."""
        taken = self._handlers.keys() & handlers.keys()
        assert not taken, f"two services take {taken}"
        self._handlers.update(handlers)
        if closed is not None:
            self._on_closed.append(closed)

    def accept(self, link: Link) -> _Connection:
        connection = _Connection(self, self._handlers, link)
        if len(self._connections) >= self._connections_max:
            self.refused += 1
            limit = self._connections_max
            text = f"{limit} connections are open, which is the limit"
            full = ResourceError("RESOURCE_EXHAUSTED", text, limit="connections_max", connections_max=limit)
            answer(connection.session, JSON, full, None)  # TCP has no other way to say why
            link.close(full)
        else:
            self._connections.add(connection)
            self.sessions.add(connection.session)
        return connection

    def divert(self, session: Session, handler: LinkHandler) -> None:
        """It is no client: from now on `handler` hears of its link, and nobody here does."""
        for connection in self._connections:
            if connection.session is session:
                self.forget(connection)
                session.link.divert(handler)
                return

    def say_goodbye(self, name: str) -> None:
        """Tell everyone that this node leaves, then close."""
        for connection in list(self._connections):
            if connection.encoding is not None:
                connection.session.send(Goodbye(node_id=name), connection.encoding)
            connection.session.close()

    def forget(self, connection: _Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self.sessions.discard(connection.session)
            for closed in self._on_closed:
                closed(connection.session)


class _Connection:
    """The handler of one link."""

    __slots__ = ("_dispatch", "_handlers", "encoding", "session")

    def __init__(self, dispatch: Dispatch, handlers: Handlers, link: Link) -> None:
        self.session = Session(link)
        self.encoding: Encoding | None = None
        """Of the last message; what the node says unasked is said in it."""
        self._dispatch = dispatch
        self._handlers = handlers

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        self.encoding = encoding
        session = self.session
        try:
            decoded = (codec.decode_json if encoding is JSON else codec.decode_msgpack)(message)
        except MpregError as error:
            answer(session, encoding, error, codec.read_u(message, encoding))
            return
        handler = self._handlers.get(decoded.__class__)
        if handler is None:
            tag = decoded.__struct_config__.tag
            unexpected = ProtocolError("PROTOCOL_UNEXPECTED_MESSAGE", f"This node does not take {tag!r} from a client")
            answer(session, encoding, unexpected, u_of(decoded))
            return
        try:
            handler(session, decoded, encoding)
        except MpregError as error:
            answer(session, encoding, error, u_of(decoded))
        except Exception:
            log.exception("A message could not be handled: %s", type(decoded).__name__)
            failed = ProtocolError("PROTOCOL_INTERNAL_ERROR", "The node failed; its log says why", state_changed=None)
            answer(session, encoding, failed, u_of(decoded))

    def on_refused(self, link: Link, error: MpregError) -> None:
        answer(self.session, self.encoding or JSON, error, None)

    def on_closed(self, link: Link, error: MpregError | None) -> None:
        if error is not None:
            log.debug("%s: %s", link.url, error)
        self._dispatch.forget(self)


def answer(session: Session, encoding: Encoding, error: MpregError, u: str | None) -> None:
    """`error-response`: everything that goes wrong outside of an RPC (R-W7)."""
    try:
        session.send(error_response(error, u), encoding)
    except Exception as problem:  # noqa: BLE001 - a `u` that fills a message, details that have no encoding
        log.debug("An error could not be sent whole: %s", problem)
        bare = error.__class__(error.code, error.message, type=error.type, state_changed=error.state_changed)
        session.send(error_response(bare, None), encoding)

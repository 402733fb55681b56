"""An open link to another node: a session whose peer has proved who it is, and the table of what it may say."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mpreg.cluster.handshake import Identity
from mpreg.errors import MpregError, ProtocolError
from mpreg.transport import Link
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import JSON, MSGPACK, Encoding
from mpreg.wire.error import ErrorResponse, error_response
from mpreg.wire.message import Message, u_of

log = logging.getLogger(__name__)

NodeHandler = Callable[[Any, Any, Encoding], None]
"""Takes the `NodeLink` by which a message came, the message, and its encoding."""


class Owner(Protocol):
    """Who keeps the links."""

    @property
    def handlers(self) -> Mapping[type[Message], NodeHandler]: ...

    @property
    def counts(self) -> Counter[str]: ...

    def ended(self, node: NodeLink, error: MpregError | None) -> None: ...


class NodeLink(Session):
    """The handler of a link, once its handshake is done."""

    __slots__ = ("_handlers", "_owner", "dialled", "leaving", "peer", "since")

    def __init__(self, link: Link, peer: Identity, owner: Owner, *, dialled: bool, since: float) -> None:
        super().__init__(link)
        self.peer = peer
        self.dialled = dialled
        """By this side."""
        self.since = since
        """By the loop's clock."""
        self.leaving = False
        """It has said GOODBYE: it gets no new work."""
        self._owner = owner
        self._handlers = owner.handlers

    @property
    def node_id(self) -> str:
        return self.peer.node_id

    def __repr__(self) -> str:
        return f"<NodeLink {self.node_id} {self.link.url}>"

    # The contract of a link's handler.

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        try:
            decoded = (codec.decode_json if encoding is JSON else codec.decode_msgpack)(message)
        except MpregError as error:
            self._owner.counts["unreadable_messages"] += 1
            self._refuse(error, codec.read_u(message, encoding), encoding)
            return
        handler = self._handlers.get(decoded.__class__)
        if handler is None:
            self._unexpected(decoded, encoding)
            return
        try:
            handler(self, decoded, encoding)
        except MpregError as error:
            self._refuse(error, u_of(decoded), encoding)
        except Exception:
            log.exception("%s: a message could not be handled: %s", self.node_id, type(decoded).__name__)
            failed = ProtocolError("PROTOCOL_INTERNAL_ERROR", "The node failed; its log says why", state_changed=None)
            self._refuse(failed, u_of(decoded), encoding)

    def on_refused(self, link: Link, error: MpregError) -> None:
        self._owner.counts["refused_messages"] += 1
        self._refuse(error, None, MSGPACK)

    def on_closed(self, link: Link, error: MpregError | None) -> None:
        self._owner.ended(self, error)

    def _unexpected(self, message: Message, encoding: Encoding) -> None:
        if isinstance(message, ErrorResponse):  # an answer to what nobody waits for
            log.info("%s: %s [%s]", self.node_id, message.error.message, message.error.code)
            return
        self._owner.counts["unexpected_messages"] += 1
        tag = message.__struct_config__.tag
        error = ProtocolError("PROTOCOL_UNEXPECTED_MESSAGE", f"This node does not take {tag!r} from a node")
        self._refuse(error, u_of(message), encoding)

    def _refuse(self, error: MpregError, u: str | None, encoding: Encoding) -> None:
        try:
            self.send(error_response(error, u), encoding)
        except Exception as problem:  # noqa: BLE001 - details that have no encoding; the peer gets no answer then
            log.debug("%s: an error could not be sent: %s", self.node_id, problem)

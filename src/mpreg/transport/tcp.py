"""A TCP socket as a link, plain or TLS."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, cast

from mpreg.errors import MpregError, ProtocolError, TransportError
from mpreg.transport.link import LinkHandler
from mpreg.transport.peer import peer_of
from mpreg.transport.socket_link import SocketLink
from mpreg.transport.tcp_frames import TcpFraming, TcpReader
from mpreg.wire.limits import Limits

log = logging.getLogger(__name__)


class TcpProtocol(asyncio.Protocol):
    """One for each socket, of a listener or dialled."""

    def __init__(self, scheme: str, accept: Callable[[SocketLink], LinkHandler], limits: Limits) -> None:
        self._scheme = scheme
        self._accept = accept
        self._limits = limits
        self.link: SocketLink

    def abandon(self) -> None:
        """The dial was given up, maybe when the socket was there already; the event loop may not say that it goes."""
        if hasattr(self, "link"):
            given_up = TransportError("TRANSPORT_CLOSED", "The dial was given up")
            self.link.cut(given_up)
            self.link.lost(given_up)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        no_delay(transport)
        loop = asyncio.get_running_loop()
        self.link = SocketLink(
            loop, transport, TcpFraming(self._limits), peer_of(self._scheme, transport), self._limits
        )
        self.link.open(self._accept(self.link))
        self._reader = TcpReader(self.link, self._limits)
        self.link.restricted = self._reader.restrict

    def data_received(self, data: bytes) -> None:
        link = self.link
        link.heard = True
        if link.closing:
            return
        link.turn = link.reading.active = True
        try:
            self._reader.feed(data)
        except Exception:
            log.exception("%s: a message could not be handled", link.url)
            link.close(handler_failed())
        link.flush()
        link.reading.end()

    def eof_received(self) -> None:
        if not self.link.lingering and not self._reader.between_messages:
            self.link.peer_left(connection_lost(self.link.url, "in the middle of a message"))
        else:
            self.link.peer_left()

    def pause_writing(self) -> None:
        self.link.pause_writing()

    def resume_writing(self) -> None:
        self.link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.lost(connection_lost(self.link.url, str(exc) if exc is not None else "without a word"))


def connection_lost(url: str, how: str) -> MpregError:
    return TransportError("TRANSPORT_CONNECTION_LOST", f"{url} has gone: {how}", state_changed=None)


def handler_failed() -> MpregError:
    return ProtocolError("PROTOCOL_INTERNAL_ERROR", "This side failed; its log says why", state_changed=None)


def no_delay(transport: Any) -> None:
    """Small answers must not wait for the peer's acknowledgement of the last ones."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

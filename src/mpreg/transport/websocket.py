"""A WebSocket as a link, plain or TLS. picows reads and unmasks; what leaves is written by `SocketLink`.

picows is given a `_Valve` for a transport: before the handshake it writes through, afterwards it can neither write
nor close, so that the order of what leaves and the way a link ends are decided in one place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from picows import (
    WSAutoPingStrategy,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from picows.picows import WSProtocol  # type: ignore[attr-defined]  # its stub leaves it out

from mpreg.errors import MpregError, ProtocolError, ResourceError
from mpreg.transport.link import LinkHandler
from mpreg.transport.peer import peer_of
from mpreg.transport.socket_link import SocketLink, too_large
from mpreg.transport.tcp import connection_lost, handler_failed, no_delay
from mpreg.transport.websocket_frames import DiallerFraming, ListenerFraming
from mpreg.wire.encoding import JSON, encoding_of
from mpreg.wire.limits import Limits

log = logging.getLogger(__name__)

TEXT: Final = WSMsgType.TEXT
BINARY: Final = WSMsgType.BINARY
READ_BUFFER_BYTES: Final = 64 * 1024
READ_BYTES_MAX: Final = 256 * 1024
"""picows doubles its buffer whenever a read has filled it, so one busy peer would soon be read by the tens of
megabytes, and nothing else would happen meanwhile."""
NO_STATUS: Final = 1005
GOOD_CLOSE_CODES: Final = frozenset({1000, 1001, NO_STATUS, 1012})


class WebSocketEnd(WSListener):
    """What comes on one WebSocket."""

    def __init__(
        self,
        protocol: WebSocketProtocol,
        accept: Callable[[SocketLink], LinkHandler],
        request: WSUpgradeRequest | None,
        limits: Limits,
    ) -> None:
        self.link = protocol.link
        self._protocol = protocol
        self._accept = accept
        self._request = request
        self._limits = limits
        self._frame_max = limits.frame_bytes_max
        self._fragments: bytearray | None = None
        """Of a message that is not complete yet."""
        self._text = False
        self._skipping = False
        """The rest of the fragmented message is dropped."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        link = self.link
        self._protocol.handshake_done(transport)
        if self._request is not None:
            path = self._request.path.decode("latin-1")
            headers = {name.lower(): value for name, value in self._request.headers.items()}
            self._request = None
            link.peer = link.peer._replace(headers=headers, path=path)
        handler = self._accept(link)
        link.restricted = self._restrict
        link.open(handler)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        link = self.link
        link.heard = True
        link.turn = True
        kind = frame.msg_type
        try:
            if (
                (kind is TEXT or kind is BINARY)
                and frame.fin
                and self._fragments is None
                and frame.payload_size <= self._frame_max
                and not (frame.rsv1 or frame.rsv2 or frame.rsv3)
            ):
                if not link.closing:
                    message = frame.get_payload_as_bytes()
                    link.handler.on_message(link, message, JSON if kind is TEXT else encoding_of(message))
            else:
                self._on_other(frame, kind)
        except Exception:
            log.exception("%s: a message could not be handled", link.url)
            link.close(handler_failed())
        if frame.last_in_buffer:
            link.flush()

    def pause_writing(self) -> None:
        self.link.pause_writing()

    def resume_writing(self) -> None:
        self.link.resume_writing()

    def _restrict(self, limits: Limits) -> None:
        self._limits = limits
        self._frame_max = limits.frame_bytes_max

    def _on_other(self, frame: WSFrame, kind: WSMsgType) -> None:
        link = self.link
        if kind is WSMsgType.CLOSE:
            link.peer_left(_why(link.url, frame.get_payload_as_bytes()))
        elif link.closing or kind is WSMsgType.PONG:
            return
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self._protocol.fail(_framing_lost("a reserved bit is set, but no extension was agreed on"))
        elif frame.payload_size > self._frame_max:
            self._protocol.fail(_frame_too_large(f"A frame of {frame.payload_size} bytes", self._frame_max))
        elif kind is WSMsgType.PING:
            link.control(self._protocol.framing.pong(frame.get_payload_as_bytes()))
        elif (kind is WSMsgType.CONTINUATION) is (self._fragments is None):
            self._protocol.fail(_framing_lost("fragments of messages are out of order"))
        else:
            self._on_fragment(frame, kind)

    def _on_fragment(self, frame: WSFrame, kind: WSMsgType) -> None:
        if self._fragments is None:
            self._fragments = bytearray()
            self._text = kind is TEXT
        size = len(self._fragments) + frame.payload_size
        if self._skipping:
            pass
        elif size > self._limits.message_bytes_max:
            self._skipping = True
            self._fragments = bytearray()
            self.link.refuse(too_large(size, self._limits.message_bytes_max))
        else:
            self._fragments += frame.get_payload_as_memoryview()
        if frame.fin:
            fragments, self._fragments = self._fragments, None
            if self._skipping:
                self._skipping = False
            else:
                message = bytes(fragments)
                link = self.link
                link.handler.on_message(link, message, JSON if self._text else encoding_of(message))


class WebSocketProtocol(WSProtocol):  # type: ignore[misc]  # the stub leaves it out
    """picows' protocol with our hand on its transport."""

    def __new__(cls, *args: Any, **kwargs: Any) -> WebSocketProtocol:
        return WSProtocol.__new__(cls)  # type: ignore[no-any-return]

    def __init__(
        self,
        scheme: str,
        accept: Callable[[SocketLink], LinkHandler],
        limits: Limits,
        dialled: tuple[str, str, Mapping[str, str]] | None = None,
    ) -> None:
        """`dialled`: host and port, path, headers of the request; `None` for a listener."""
        self.framing: ListenerFraming | DiallerFraming
        self.framing = ListenerFraming(limits) if dialled is None else DiallerFraming(limits)
        self._scheme = scheme
        self._accept = accept
        self._limits = limits
        host, path, headers = dialled or (None, None, None)
        super().__init__(
            host,
            path,
            dialled is not None,
            self._answer if dialled is None else self._dialled,
            _Log(self),
            False,  # what a handler raises is ours to deal with
            None,  # the handshake's time is watched by the listener and the dialler
            False,
            0,
            0,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            False,
            limits.frame_bytes_max,
            headers,
            READ_BUFFER_BYTES,
        )

    def connection_made(self, transport: asyncio.Transport) -> None:
        no_delay(transport)
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._valve = _Valve(transport, self.framing)
        self.link = SocketLink(self._loop, transport, self.framing, peer_of(self._scheme, transport), self._limits)
        super().connection_made(self._valve)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.link.lost(connection_lost(self.link.url, str(exc) if exc is not None else "without a close frame"))

    def get_buffer(self, size_hint: int) -> memoryview:
        room: memoryview = super().get_buffer(size_hint)
        return room[:READ_BYTES_MAX]

    def feed(self, data: bytes) -> None:
        """As if it had been read."""
        view = memoryview(data)
        while view and self._transport.get_protocol() is self:
            room: memoryview = self.get_buffer(-1)
            size = min(len(room), len(view))
            room[:size] = view[:size]
            self.buffer_updated(size)
            view = view[size:]

    @property
    def open(self) -> bool:
        return self._valve.shut

    def handshake_done(self, transport: WSTransport) -> None:
        self._valve.shut = True
        if isinstance(self.framing, DiallerFraming):
            self.framing.send = transport.send

    def fail(self, error: MpregError) -> None:
        """Nothing that comes after this makes sense."""
        self._transport.set_protocol(Discard(self.link))
        self.link.fail(error)

    def fail_later(self, error: MpregError) -> None:
        """picows reads one frame ahead: what came before the one that it can't read is handled first."""
        self._transport.set_protocol(Discard(self.link))
        self._loop.call_soon(self.link.fail, error)

    def parser_failed(self, code: int, text: str) -> None:
        if code == 1009:
            self.fail_later(_frame_too_large(text[:100], self._limits.frame_bytes_max))
        else:
            self.fail_later(_framing_lost(text[:100]))

    def _dialled(self, request: WSUpgradeRequest, response: WSUpgradeResponse) -> WSListener:
        return WebSocketEnd(self, self._accept, None, self._limits)

    def _answer(self, request: WSUpgradeRequest) -> WSListener | WSUpgradeResponseWithListener:
        headers = request.headers
        if "websocket" not in headers.get("upgrade", "").lower():
            response = WSUpgradeResponse.create_error_response(
                HTTPStatus.UPGRADE_REQUIRED,
                b"This is a WebSocket port of MPREG.\n",
                {"Upgrade": "websocket", "Content-Type": "text/plain"},
            )
            return WSUpgradeResponseWithListener(response, None)
        # Browsers send `keep-alive, Upgrade`; picows takes only the one word.
        if "upgrade" in (token.strip().lower() for token in headers.get("connection", "").split(",")):
            headers["connection"] = "Upgrade"
        return WebSocketEnd(self, self._accept, request, self._limits)


class Discard(asyncio.Protocol):
    """Reads and drops, until the socket is closed."""

    def __init__(self, link: SocketLink) -> None:
        self._link = link

    def eof_received(self) -> None:
        self._link.peer_left()

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lost(None)


class _Valve:
    """The transport as picows sees it."""

    def __init__(self, transport: asyncio.Transport, framing: ListenerFraming | DiallerFraming) -> None:
        self.get_extra_info = transport.get_extra_info
        self.shut = False
        self._transport = transport
        self._take = framing.write if isinstance(framing, DiallerFraming) else _drop

    def get_write_buffer_size(self) -> int:
        return 1  # or picows would write to the socket past everyone

    def write(self, data: bytes) -> None:
        if self.shut:
            self._take(data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        if not self.shut:
            self._transport.close()

    abort = close


class _Log:
    """picows tells of a frame that breaks the protocol only by logging it; everything else that it logs is noise."""

    def __init__(self, protocol: WebSocketProtocol) -> None:
        self._protocol = protocol

    def error(self, text: str, *args: Any) -> None:
        if args and isinstance(args[0], tuple) and len(args[0]) == 2:
            code, reason = args[0]
            self._protocol.parser_failed(int(code), str(reason))
        else:
            self._protocol.parser_failed(1002, text)

    def exception(self, text: str, *args: Any) -> None:
        log.exception(text, *args)
        self._protocol.parser_failed(1002, text)

    def isEnabledFor(self, level: int) -> bool:
        return False

    def debug(self, *_: Any) -> None: ...

    info = warning = log = debug


def _drop(data: bytes) -> None: ...


def _framing_lost(reason: str) -> MpregError:
    return ProtocolError("PROTOCOL_FRAMING_LOST", f"The WebSocket stream can't be read any more: {reason}")


def _frame_too_large(what: str, limit: int) -> MpregError:
    return ResourceError(
        "RESOURCE_FRAME_TOO_LARGE",
        f"{what}; send a longer message in fragments",
        limit="frame_bytes_max",
        frame_bytes_max=limit,
    )


def _why(url: str, close: bytes) -> MpregError | None:
    """What the payload of a close frame means."""
    code = int.from_bytes(close[:2], "big") if close else NO_STATUS
    if code in GOOD_CLOSE_CODES:
        return None
    reason = close[2:].decode(errors="replace")
    return connection_lost(url, f"closed with {code}{': ' + reason if reason else ''}")

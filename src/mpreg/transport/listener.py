"""Accepting links: `listen` binds one address, for WebSocket or TCP, plain or TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from mpreg.errors import TransportError
from mpreg.transport.link import Link, LinkHandler
from mpreg.transport.origin import may_come
from mpreg.transport.socket_link import SocketLink
from mpreg.transport.tcp import TcpProtocol
from mpreg.transport.tls import TlsFiles
from mpreg.transport.url import parse, url_of
from mpreg.transport.websocket import WebSocketProtocol
from mpreg.wire.limits import CLIENT, Limits

Accept = Callable[[Link], LinkHandler]
"""Called once for each new link, before anything is read from it; the handler that it returns hears of the link's
messages and its end. It may close the link at once."""

BACKLOG: Final = 1024
REQUEST_BYTES_MAX: Final = 16 * 1024


class Listener:
    """`url` names the real port. `close` stops accepting; links that exist stay."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._server: asyncio.Server | None = None
        self._greeters: set[Greeter] = set()
        self._closed = asyncio.Event()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for greeter in list(self._greeters):
            greeter.cut()
        self._closed.set()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def __repr__(self) -> str:
        return f"<Listener {self.url}{' closed' if self._closed.is_set() else ''}>"

    async def bind(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        tls: TlsFiles | None,
        limits: Limits,
        share: bool = False,
    ) -> None:
        loop = asyncio.get_running_loop()
        context = None if tls is None else tls.for_listener()
        try:
            self._server = await loop.create_server(
                protocol,
                host,
                port,
                ssl=context,
                backlog=BACKLOG,
                reuse_port=share or None,
                ssl_handshake_timeout=None if context is None else limits.handshake_timeout_s,
            )
        except OSError as problem:
            raise TransportError(
                "TRANSPORT_CONNECTION_REFUSED",
                f"Can't listen on {self.url}: {problem.strerror or problem}",
                url=self.url,
            ) from None


async def listen(
    url: str,
    accept: Accept,
    *,
    limits: Limits = CLIENT,
    tls: TlsFiles | None = None,
    share: bool = False,
    origins: Sequence[str] = (),
) -> Listener:
    """Accept links at `url`; port 0 takes a free one. `wss` and `tcps` need `tls`. `share`: other processes listen
    there, too, and the kernel spreads connections over them. `origins`: of web pages that may (`origin.py`)."""
    address = parse(url)
    if address.secure is not (tls is not None):
        need = "needs TLS files" if address.secure else "takes no TLS files"
        raise TransportError("TRANSPORT_TLS", f"A {address.scheme} listener {need}")
    listener = Listener(url)
    protocol: Callable[[], asyncio.BaseProtocol]
    if address.websocket:
        protocol = partial(Greeter, address.scheme, accept, limits, listener._greeters, tuple(origins))
    else:
        protocol = partial(TcpProtocol, address.scheme, accept, limits)
    await listener.bind(protocol, address.host, address.port, tls, limits, share)
    assert listener._server is not None
    port = listener._server.sockets[0].getsockname()[1]
    listener.url = url_of(address.scheme, address.host, port)
    return listener


class Greeter(asyncio.Protocol):
    """Reads the request of a WebSocket client, and hands the socket over when it is whole. What does not speak HTTP
    is told so at once: a TLS client at a plain port would otherwise wait for nothing."""

    def __init__(
        self,
        scheme: str,
        accept: Callable[[SocketLink], LinkHandler],
        limits: Limits,
        greeters: set[Greeter],
        origins: tuple[str, ...],
    ) -> None:
        self._scheme = scheme
        self._origins = origins
        self._accept = accept
        self._limits = limits
        self._greeters = greeters
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._greeters.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(
            self._limits.handshake_timeout_s,
            self._turn_away,
            "408 Request Timeout",
            "The request did not come in time.",
        )

    def data_received(self, data: bytes) -> None:
        self._request += data
        if not 0x41 <= self._request[0] <= 0x5A:
            self._turn_away("400 Bad Request", f"This is a {self._scheme} port of MPREG; what came is not HTTP.")
            return
        end = self._request.find(b"\r\n\r\n")
        if end < 0 and len(self._request) < REQUEST_BYTES_MAX:
            return
        if not 0 <= end < REQUEST_BYTES_MAX:
            self._turn_away("431 Request Header Fields Too Large", f"The limit is {REQUEST_BYTES_MAX} bytes.")
            return
        if not may_come(self._request[:end], self._origins):
            self._turn_away(
                "403 Forbidden", "Pages of this origin may not connect; the setting `origins` lists who may."
            )
            return
        self._done()
        protocol = WebSocketProtocol(self._scheme, self._accept, self._limits)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.feed(self._request[: end + 4])
        if protocol.open:
            protocol.feed(self._request[end + 4 :])

    def connection_lost(self, exc: Exception | None) -> None:
        self._done()

    def cut(self) -> None:
        self._transport.abort()

    def _done(self) -> None:
        self._timer.cancel()
        self._greeters.discard(self)

    def _turn_away(self, status: str, text: str) -> None:
        body = text + "\n"
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close"
        self._transport.write(f"{head}\r\n\r\n{body}".encode())
        self._transport.close()

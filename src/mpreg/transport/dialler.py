"""Making a link: `dial` connects to one address."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import Final

from picows import WSHandshakeError

from mpreg.errors import MpregError, TimedOut, TransportError
from mpreg.transport.link import Link
from mpreg.transport.listener import Accept
from mpreg.transport.tcp import TcpProtocol
from mpreg.transport.tls import TlsFiles
from mpreg.transport.url import Address, parse
from mpreg.transport.websocket import WebSocketProtocol
from mpreg.wire.limits import CLIENT, Limits

TIMEOUT_S: Final = 10.0

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")


async def dial(
    url: str,
    accept: Accept,
    *,
    limits: Limits = CLIENT,
    tls: TlsFiles | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Link:
    """A link to `url`, whose handler is what `accept` returns. `headers` go into a WebSocket's request.

    Raises `TRANSPORT_CONNECTION_REFUSED`, `TRANSPORT_CONNECTION_LOST` (during the handshake), `TRANSPORT_TLS`,
    `TRANSPORT_INVALID_URL` and `TIMEOUT_CONNECT`.
    """
    address = parse(url)
    _check_headers(headers or {})
    if tls is not None and not address.secure:
        raise TransportError("TRANSPORT_TLS", f"{address.scheme} takes no TLS files")
    context = (tls or TlsFiles()).for_dialler() if address.secure else None
    server_name = None if context is None else (tls and tls.server_name) or address.host
    try:
        async with asyncio.timeout(timeout_s):
            if address.websocket:
                return await _dial_websocket(address, accept, limits, context, server_name, headers or {}, timeout_s)
            return await _dial_tcp(address, accept, limits, context, server_name, timeout_s)
    except MpregError:
        raise
    except TimeoutError:
        raise TimedOut("TIMEOUT_CONNECT", f"No connection to {address} within {timeout_s} s", url=url) from None
    except (ssl.SSLError, ssl.CertificateError) as problem:
        raise TransportError("TRANSPORT_TLS", f"{address}: {problem}", url=url) from None
    except OSError as problem:
        raise TransportError(
            "TRANSPORT_CONNECTION_REFUSED", f"{address}: {problem.strerror or problem}", url=url
        ) from None


def _check_headers(headers: Mapping[str, str]) -> None:
    """A line break in a value would smuggle in a header, or a request, of whoever chose the value."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            # The value is not repeated: it may be a token.
            raise TransportError("TRANSPORT_INVALID_URL", f"The header {name!r} can't be sent", header=name)


async def _dial_tcp(
    address: Address,
    accept: Accept,
    limits: Limits,
    context: ssl.SSLContext | None,
    server_name: str | None,
    timeout_s: float,
) -> Link:
    loop = asyncio.get_running_loop()
    protocol = TcpProtocol(address.scheme, accept, limits)
    try:
        await loop.create_connection(
            lambda: protocol,
            address.host,
            address.port,
            ssl=context,
            server_hostname=server_name,
            ssl_handshake_timeout=None if context is None else timeout_s,
        )
    except BaseException:
        protocol.abandon()
        raise
    return protocol.link


async def _dial_websocket(
    address: Address,
    accept: Accept,
    limits: Limits,
    context: ssl.SSLContext | None,
    server_name: str | None,
    headers: Mapping[str, str],
    timeout_s: float,
) -> Link:
    loop = asyncio.get_running_loop()
    host = f"[{address.host}]" if ":" in address.host else address.host
    transport, protocol = await loop.create_connection(
        lambda: WebSocketProtocol(address.scheme, accept, limits, (f"{host}:{address.port}", address.path, headers)),
        address.host,
        address.port,
        ssl=context,
        server_hostname=server_name,
        ssl_handshake_timeout=None if context is None else timeout_s,
    )
    try:
        await protocol.wait_until_handshake_complete()
        if not protocol.open:
            raise TransportError(
                "TRANSPORT_CONNECTION_LOST", f"{address} hung up during the handshake", url=str(address)
            )
    except WSHandshakeError as refused:
        transport.abort()
        raise TransportError("TRANSPORT_CONNECTION_REFUSED", f"{address}: {refused}", url=str(address)) from None
    except BaseException:
        transport.abort()
        raise
    return protocol.link

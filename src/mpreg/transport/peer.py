"""Who is at the other end, as far as the transport knows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mpreg.transport.url import url_of

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Peer(NamedTuple):
    url: str
    """For logs: `tcp://127.0.0.1:41234`."""
    headers: Mapping[str, str] = NO_HEADERS
    """Of the WebSocket request, names in lower case; empty on every other link."""
    path: str = "/"
    """That the WebSocket request asked for."""
    certificate: Mapping[str, Any] | None = None
    """The peer's verified certificate, as `ssl.SSLSocket.getpeercert` gives it."""


def peer_of(scheme: str, transport: Any) -> Peer:
    """From the socket; a WebSocket request adds its headers later."""
    name = transport.get_extra_info("peername")
    url = url_of(scheme, *name[:2]) if isinstance(name, tuple) else f"{scheme}://?"
    tls = transport.get_extra_info("ssl_object")
    return Peer(url, certificate=(tls.getpeercert() or None) if tls is not None else None)

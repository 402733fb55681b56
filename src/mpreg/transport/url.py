"""Addresses: `ws://host:port/path`, `wss://`, `tcp://`, `tcps://`. Default ports are those of R-W8."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from mpreg.errors import TransportError

DEFAULT_PORTS: Final = {"ws": 6666, "wss": 6667, "tcp": 6668, "tcps": 6669}


class Address(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str = "/"

    @property
    def secure(self) -> bool:
        return self.scheme in ("wss", "tcps")

    @property
    def websocket(self) -> bool:
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        return url_of(self.scheme, self.host, self.port) + ("" if self.path == "/" else self.path)


def parse(url: str) -> Address:
    """Raises `TRANSPORT_INVALID_URL`, which says what is wrong with it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise _invalid(url, str(problem)) from None
    if parts.scheme not in DEFAULT_PORTS:
        raise _invalid(url, f"the scheme must be one of {', '.join(DEFAULT_PORTS)}")
    if not parts.hostname:
        raise _invalid(url, "a host is missing")
    if parts.username is not None or parts.password is not None:
        # Not repeated in the error: it would carry the password into logs.
        raise TransportError(
            "TRANSPORT_INVALID_URL", "A URL of a node carries no user or password; credentials go into headers"
        )
    if parts.fragment:
        raise _invalid(url, "a fragment means nothing here")
    if not _is_sendable(parts.hostname):
        raise _invalid(url, "the host is no name that can be looked up")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise _invalid(url, "the path is plain ASCII; anything else in it is written as %XX")
    if path != "/" and parts.scheme in ("tcp", "tcps"):
        raise _invalid(url, f"{parts.scheme} has no path")
    return Address(parts.scheme, parts.hostname, DEFAULT_PORTS[parts.scheme] if port is None else port, path)


def url_of(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _is_sendable(host: str) -> bool:
    """Labels that are empty or too long are refused by the codec, with an error of its own, in the middle of a dial."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _invalid(url: str, reason: str) -> TransportError:
    return TransportError("TRANSPORT_INVALID_URL", f"{url!r}: {reason}", url=url)

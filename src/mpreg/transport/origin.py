"""Which web pages may connect. Browsers let every page of the web open a WebSocket to this very machine, so a listener
on loopback is not out of reach for them; they say in `Origin` where the page is from. Programs that are no browsers
send no `Origin`. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

ANY = "*"


def may_come(request: bytes, allowed: Iterable[str]) -> bool:
    """From the head of a WebSocket request. Pages of this machine may, and pages that the host itself serves if it is
    called by its number: a name can be made to point here by whoever owns it."""
    origin = _header(request, b"origin")
    if not origin or ANY in allowed or origin in allowed:
        return True
    page = _host_of(origin)
    if page == "localhost" or _is_loopback(page):
        return True
    return _is_number(page) and page == _host_of("//" + _header(request, b"host"))


def _header(request: bytes, name: bytes) -> str:
    """Its value, lower case, or "" if it is not there. Several are one that no page can have."""
    found = [
        value
        for key, colon, value in (line.partition(b":") for line in request.split(b"\r\n")[1:])
        if key.lower() == name
    ]
    return b",".join(found).strip().decode("latin-1").lower()


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return _is_number(host) and ipaddress.ip_address(host).is_loopback

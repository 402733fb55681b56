"""What the address of a listener says about who can reach it."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Can only this machine reach it? A name that is not `localhost` may stand for any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""What a node has to know of a service: which messages it takes, and when it is told what.

A service knows no node; `services.py` makes each with plain callables, and lists them in the order in which they start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from mpreg.node.dispatch import Handlers
from mpreg.transport.session import Session


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """All but `name` is optional. Later services may use earlier ones; they end in the opposite order."""

    name: str
    """Of its part of `mpreg.stats`."""
    handlers: Handlers = {}
    """Messages of clients, by class."""
    closed: Callable[[Session], None] | None = None
    """A connection is gone, and what belongs to it with it."""
    report: Callable[[], Any] | None = None
    """What it counts."""
    start: Callable[[], Awaitable[None]] | None = None
    """The store is open; nobody can connect yet."""
    listening: Callable[[Mapping[str, str]], Awaitable[None]] | None = None
    """Everybody can connect, by these URLs."""
    drain: Callable[[float], Awaitable[None]] | None = None
    """Nobody new can connect: take no new work, finish what runs within so many seconds. All services at once."""
    close: Callable[[], Awaitable[None] | None] | None = None
    """Nobody is connected any more. Called even if the node, or this service, did not start."""

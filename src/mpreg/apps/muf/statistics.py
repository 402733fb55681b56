"""What a unit counts."""

from __future__ import annotations

import msgspec


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    calls: int
    """That wait for their answers now."""
    running: int
    """Requests that are being worked on now."""
    waiting: int
    """Requests that it has heard of and has no room for now; others may take them."""
    handled: int
    """Requests that it has worked on to the end."""
    dropped: int
    """Requests that it has forgotten because too many were waiting."""
    ignored: int
    """Events of keys under `MUF/` that the grammar does not know."""
    polls: bool
    """The server tells of no keys at the moment, so they are looked at again and again."""

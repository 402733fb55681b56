"""One cached value as every level holds it. How often it was used is each level's own affair.

All times are the store's clock, in ms since 1970, whoever reads them: a node hands its levels the store's time.
"""

from __future__ import annotations

import msgspec


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    value: bytes
    """In MessagePack, as it is in the store."""
    version: int
    """Given by the store at each write. A later write of a key has a higher one, deletes in between or not."""
    created_ms: int
    """When this value was written."""
    expires_ms: int = 0
    """Not to be served from then on; 0: it lives until it is removed."""
    fresh_until_ms: int = 0
    """From then on it may be served while it is computed anew; 0: as long as it lives."""
    cost_ms: float = 0.0
    """What it took to compute."""
    tags: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    """Names of what it was computed from; another entry is named by its `reference`, namespace:identifier."""
    checked_ms: int = 0
    """When this was last known to be what the store holds, by a clock that never goes back (`StoreClock.steady_ms`).
    Nothing that is kept in the store itself, nor on disk."""

    @property
    def size_bytes(self) -> int:
        """Of the encoded value, which is what limits are about."""
        return len(self.value)

    def is_alive(self, now_ms: int) -> bool:
        return not self.expires_ms or now_ms < self.expires_ms

    def is_fresh(self, now_ms: int) -> bool:
        return not self.fresh_until_ms or now_ms < self.fresh_until_ms

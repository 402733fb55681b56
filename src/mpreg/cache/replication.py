"""How many copies in the store have a write: WAIT, on a connection of its own, for it blocks (`replication_factor`)."""

from __future__ import annotations

from typing import Final

from mpreg.cache.store_level import TOUCH, StoreLevel, unavailable
from mpreg.errors import StoreError

WAIT_S_MAX: Final = 1.0
"""Replicas that are there have a write within milliseconds; those that are not won't come for the asking."""


class Replication:
    def __init__(self, level: StoreLevel) -> None:
        self._level = level

    async def copies(self, key: bytes, version: int, wanted: int, within_s: float) -> int:
        """The primary's and those of replicas, at least of what was written before this call. WAIT speaks of the
        writes of its own connection, so one is made there that changes nothing."""
        timeout_ms = max(1, int(min(within_s / 2, WAIT_S_MAX) * 1000))
        try:
            async with self._level.store.dedicated(key) as link:
                await link.script(TOUCH, (key,), (version, 0, 0))
                return 1 + int(await link.command(b"WAIT", wanted - 1, timeout_ms))
        except StoreError as error:
            raise unavailable(error) from None

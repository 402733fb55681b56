"""No publisher gets more than its share of a turn: an event loop may read one busy connection for a long time before it
lets anything else happen, also before anything is delivered."""

from __future__ import annotations

import asyncio
from typing import Final

from mpreg.transport import Link

TURN_BYTES: Final = 128 * 1024
"""Published by one connection; then it is not read until the next turn."""


class Turns:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._taken: dict[Link, int] = {}
        self._scheduled = False

    def took(self, link: Link, size: int) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end)
        before = self._taken.get(link, 0)
        self._taken[link] = before + size
        if before < TURN_BYTES <= before + size:
            link.pause_reading()

    def _end(self) -> None:
        self._scheduled = False
        taken, self._taken = self._taken, {}
        for link, size in taken.items():
            if size >= TURN_BYTES:
                link.resume_reading()

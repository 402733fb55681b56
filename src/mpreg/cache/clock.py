"""The store's clock as a node knows it, from what the store's answers say of it.

An entry in a node's memory must not outlive the one in the store, so `now_ms` is never behind the store's clock, and
ahead of it by no more than an answer took.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

HEARD_S: Final = 60.0
"""How long an answer counts: two clocks drift apart by little in that time."""


class StoreClock:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ahead_ms = math.inf
        self._heard = -math.inf
        self._steady_ahead_ms = math.inf

    @property
    def is_known(self) -> bool:
        return self._ahead_ms != math.inf

    @property
    def is_recent(self) -> bool:
        return self._monotonic() - self._heard < HEARD_S

    def heard(self, store_ms: int, sent: float) -> None:
        """The store's clock stood at `store_ms` after a command had been sent at `sent` (monotonic)."""
        now = self._monotonic()
        ahead = store_ms + 1 - sent * 1000
        if ahead <= self._ahead_ms or now - self._heard >= HEARD_S:
            self._ahead_ms, self._heard = ahead, now
            if self._steady_ahead_ms == math.inf:
                self._steady_ahead_ms = ahead

    def steady_ms(self) -> int:
        """About the same, but it never goes back: for what happened before what in this process."""
        assert self.is_known, "ask the store first"
        return int(self._monotonic() * 1000 + self._steady_ahead_ms)

    def now_ms(self) -> int:
        assert self.is_known, "ask the store first"
        return int(self._monotonic() * 1000 + self._ahead_ms)

"""How long a suspect has before it counts as dead: less, the more others have found the same on their own."""

from __future__ import annotations

import math


class Suspicion:
    """Falls from `max_s` to `min_s` with the logarithm of the confirmations, as the first ones say most."""

    __slots__ = ("_max_s", "_min_s", "_started", "_wanted", "_who")

    def __init__(self, now: float, accuser: str, wanted: int, min_s: float, max_s: float) -> None:
        self._started = now
        self._who = {accuser}
        self._wanted = wanted
        self._min_s = min_s
        self._max_s = max_s

    @property
    def confirmations(self) -> int:
        return len(self._who) - 1

    def confirm(self, accuser: str) -> bool:
        """Is this news? One who has said it before does not count, nor does anyone once there are enough."""
        if self.confirmations >= self._wanted or accuser in self._who:
            return False
        self._who.add(accuser)
        return True

    @property
    def ends_at(self) -> float:
        if self._wanted == 0:
            return self._started + self._min_s
        share = math.log(self.confirmations + 1) / math.log(self._wanted + 1)
        return self._started + max(self._min_s, self._max_s - share * (self._max_s - self._min_s))

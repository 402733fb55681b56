"""Many who each want to be woken at a time of their own, on one timer of the event loop.

A timer of the loop costs about as much as a command, and most locks are given back long before they are due. So those
of the same few milliseconds share a round; leaving it costs nothing, and a round that all have left is never rung.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

ROUNDS_PER_S = 200
"""An alarm rings up to 5 ms late, never early: half of the margin of the shortest lease."""
SPAN_S = 10.0
"""Whoever wants to sleep for longer is woken now and then, so that there are never more than 2,001 rounds."""


class Sleeper(Protocol):
    def wake(self) -> None:
        """Also when it is too early, or not wanted any more."""


Round = set[Sleeper]


class Alarms:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._rounds: dict[int, Round] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._armed = 0

    def set(self, sleeper: Sleeper, at: float, now: float) -> Round:
        """Wake `sleeper` once, at `at` or some time before. What is returned it leaves to be woken no more:
        `round.discard(sleeper)`."""
        number = int(min(at, now + SPAN_S) * ROUNDS_PER_S) + 1
        found = self._rounds.get(number)
        if found is None:
            found = self._rounds[number] = set()
            heapq.heappush(self._order, number)
            if self._timer is None or number < self._armed:
                self._arm(number, now)
        found.add(sleeper)
        return found

    def _arm(self, number: int, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed = number
        self._timer = self._loop.call_later(max(0.0, number / ROUNDS_PER_S - now), self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._clock()
        while self._order and (self._order[0] <= now * ROUNDS_PER_S or not self._rounds[self._order[0]]):
            for sleeper in tuple(self._rounds.pop(heapq.heappop(self._order))):
                self._loop.call_soon(sleeper.wake)  # so that one that fails takes no other along
        if self._order:
            self._arm(self._order[0], now)

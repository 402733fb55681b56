"""The timeouts of all calls, with one timer and nothing to do for a call that is answered in time.

The timer is set to the earliest end that was ever asked for, so it may ring for a call that is long gone; then it looks
at those that are there. A call expires at most 10 ms late.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterable
from math import inf

from mpreg.client.calls import Call

RESOLUTION_S = 0.01


class Expiry:
    def __init__(self, loop: AbstractEventLoop, calls: Callable[[], Iterable[Call]]) -> None:
        """`calls`: all that are under way."""
        self._loop = loop
        self._calls = calls
        self._timer: TimerHandle | None = None
        self.next = inf
        """When the timer rings. A call that expires before that must be told with `watch`."""

    def watch(self, expires: float) -> None:
        if expires < self.next:
            self._arm(expires)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        self.close()
        self.next = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        self.next = inf
        earliest = inf
        for call in list(self._calls()):
            if call.expires <= now:
                call.expire()
            elif call.expires < earliest:
                earliest = call.expires
        if earliest < inf:
            self._arm(max(earliest, now + RESOLUTION_S))

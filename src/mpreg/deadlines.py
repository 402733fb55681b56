"""Many timeouts, one timer. A deadline costs a dict entry, not a timer of the loop; it fires at most 10 ms late."""

from __future__ import annotations

import heapq
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

RESOLUTION_S = 0.01

Expire = Callable[[], None]


class Deadlines:
    """Of one event loop. Empty when nothing is pending; `close` forgets what is."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, dict[Deadline, Expire]] = {}
        self._order: list[int] = []
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def add(self, after_s: float, expire: Expire) -> Deadline:
        """Call `expire` in `after_s` seconds, unless the deadline is cancelled before."""
        slot = int((self._loop.time() + after_s) / RESOLUTION_S) + 1
        entries = self._slots.get(slot)
        if entries is None:
            entries = self._slots[slot] = {}
            heapq.heappush(self._order, slot)
            if self._order[0] == slot:
                self._arm()
        deadline = Deadline(entries)
        entries[deadline] = expire
        return deadline

    def close(self) -> None:
        self._slots.clear()
        self._order.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._order[0] * RESOLUTION_S, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time() / RESOLUTION_S
        while self._order and (self._order[0] <= now or not self._slots[self._order[0]]):
            entries = self._slots.pop(heapq.heappop(self._order))
            while entries:
                _, expire = entries.popitem()
                expire()
        if self._order and self._timer is None:
            self._arm()


class Deadline:
    __slots__ = ("_entries",)

    def __init__(self, entries: dict[Deadline, Expire]) -> None:
        self._entries = entries

    def cancel(self) -> None:
        self._entries.pop(self, None)

"""Many timeouts, one timer. A deadline costs a dict entry, not a timer of the loop; it fires at most 10 ms late."""

from __future__ import annotations

import heapq
import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

log = logging.getLogger(__name__)

RESOLUTION_S = 0.01
_SLACK = 64  # cancelled slots that may wait in the heap beside as many again as there are live ones

Expire = Callable[[], None]


class Deadlines:
    """Of one event loop. Empty when nothing is pending; `close` forgets what is."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, dict[Deadline, Expire]] = {}
        self._order: list[int] = []  # a heap of all slots, and of some that are gone
        self._kept = -1
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
        deadline = Deadline(self, slot)
        entries[deadline] = expire
        return deadline

    def remove(self, deadline: Deadline) -> None:
        entries = self._slots.get(deadline.slot)
        if entries is None or entries.pop(deadline, None) is None or entries:
            return
        # The slot that became empty last is kept: one call after another would make it anew, and a timer with it.
        kept, self._kept = self._kept, deadline.slot
        if kept != deadline.slot and not self._slots.get(kept, True):
            del self._slots[kept]
        if len(self._order) > 2 * len(self._slots) + _SLACK:
            self._order = sorted(self._slots)  # a sorted list is a heap

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
        now = self._loop.time()
        while self._order and (self._order[0] * RESOLUTION_S <= now or self._order[0] not in self._slots):
            slot = heapq.heappop(self._order)
            entries = self._slots.get(slot, {})
            while entries:  # in place, so that one of them can cancel another
                _, expire = entries.popitem()
                try:
                    expire()
                except Exception:
                    log.exception("A deadline could not be handled")
            self._slots.pop(slot, None)
        if self._order and self._timer is None:
            self._arm()


class Deadline:
    __slots__ = ("_deadlines", "slot")

    def __init__(self, deadlines: Deadlines, slot: int) -> None:
        self._deadlines = deadlines
        self.slot = slot

    def cancel(self) -> None:
        """Nothing happens if it has fired already."""
        self._deadlines.remove(self)

"""Cost-based eviction (R-C6): the entry goes that is worth least.

    score = computation_cost * access_frequency * recency / size, weighted by dependants

Frequency is a count of uses that halves with every half-life, recency halves with every half-life since the last use.
As both fade at the same pace for every entry, the order of two entries changes only when one is used: so their scores
are compared as logarithms, as if all had been used last at one moment, and a heap keeps the order.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from math import log2
from typing import Final

from mpreg.cache.bounds import Bounds, OnOut
from mpreg.cache.entry import Entry
from mpreg.cache.key import reference_of

HALF_LIFE_MS: Final = 600_000.0
COST_MS_MIN: Final = 0.1
"""Of an entry that does not say what it took to compute."""
DEPENDANT_WEIGHT: Final = 0.1
"""An entry that others were computed from is worth so much more for each of them that is here, up to twice as much."""
DEPENDANTS_MAX: Final = 10
STALE_MAX: Final = 64
"""The heap is made anew when it has more than twice the entries and so many."""


class _Worth:
    """One entry, and what its score is made of; `rank` is the logarithm of it but for the dependants."""

    __slots__ = ("entry", "rank", "used_ms", "uses")

    def __init__(self, entry: Entry, now_ms: int) -> None:
        self.entry = entry
        self.uses = 1.0
        self.used_ms = now_ms
        self.rank = 0.0


class CostBased:
    """A rank in the heap may be too low: the entry was used since, or it has dependants. It is never too high, so what
    has the lowest score is found among the first ones.
    """

    __slots__ = ("_bounds", "_bytes", "_dependants", "_half_life_ms", "_heap", "_held", "_now_ms", "_on_out")

    def __init__(self, bounds: Bounds, on_out: OnOut, half_life_ms: float = HALF_LIFE_MS) -> None:
        self._bounds = bounds
        self._on_out = on_out
        self._half_life_ms = half_life_ms
        self._held: dict[bytes, _Worth] = {}
        self._heap: list[tuple[float, bytes]] = []
        self._dependants: Counter[str] = Counter()
        self._bytes = 0
        self._now_ms = 0

    def get(self, key: bytes, now_ms: int) -> Entry | None:
        self._now_ms = max(self._now_ms, now_ms)
        worth = self._held.get(key)
        if worth is None:
            return None
        self._use(worth)
        return worth.entry

    def peek(self, key: bytes) -> Entry | None:
        worth = self._held.get(key)
        return None if worth is None else worth.entry

    def put(self, key: bytes, entry: Entry) -> bool:
        if len(entry.value) > self._bounds.bytes_max or self._bounds.entries_max < 1:
            self.remove(key)
            return False
        self._now_ms = max(self._now_ms, entry.checked_ms, entry.created_ms)
        worth = self._held.get(key)
        if worth is None:
            self._make_room(1, len(entry.value))
            worth = self._held[key] = _Worth(entry, self._now_ms)
            self._bytes += len(entry.value)
            self._depend(entry, 1)
            self._rank(key, worth)
        else:
            self._replace(key, worth, entry)
            if key in self._held:
                self._use(worth)
        return True

    def renew(self, key: bytes, entry: Entry) -> bool:
        worth = self._held.get(key)
        if worth is None or len(entry.value) > self._bounds.bytes_max:
            return False
        self._replace(key, worth, entry)
        return True

    def remove(self, key: bytes) -> bool:
        worth = self._held.pop(key, None)
        if worth is None:
            return False
        self._bytes -= len(worth.entry.value)
        self._depend(worth.entry, -1)
        return True

    def keys(self) -> Iterator[bytes]:
        return iter(list(self._held))

    def clear(self) -> None:
        self._held.clear()
        self._heap.clear()
        self._dependants.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def score(self, key: bytes, now_ms: int) -> dict[str, float]:
        """The note's `eviction_score` of an entry that is here."""
        worth = self._held[key]
        return {
            "computation_cost": max(worth.entry.cost_ms, COST_MS_MIN),
            "access_frequency": worth.uses,
            "recency_factor": 2.0 ** ((worth.used_ms - now_ms) / self._half_life_ms),
            "size_penalty": 1.0 / max(1, len(worth.entry.value)),
            "dependency_weight": self._weight(key),
            "final_score": 2.0 ** (worth.rank + log2(self._weight(key)) - now_ms / self._half_life_ms),
        }

    def _weight(self, key: bytes) -> float:
        if not self._dependants:
            return 1.0
        return 1.0 + DEPENDANT_WEIGHT * min(self._dependants.get(reference_of(key), 0), DEPENDANTS_MAX)

    def _rank_of(self, worth: _Worth) -> float:
        value = max(worth.entry.cost_ms, COST_MS_MIN) * worth.uses / max(1, len(worth.entry.value))
        return log2(value) + worth.used_ms / self._half_life_ms

    def _use(self, worth: _Worth) -> None:
        """The rank only grows, so what stands in the heap may stay."""
        since_ms = self._now_ms - worth.used_ms
        worth.uses = (worth.uses * 2.0 ** (-since_ms / self._half_life_ms) if since_ms else worth.uses) + 1.0
        worth.used_ms = self._now_ms
        worth.rank = self._rank_of(worth)

    def _rank(self, key: bytes, worth: _Worth) -> None:
        """Anew, where it may have become less."""
        worth.rank = self._rank_of(worth)
        heapq.heappush(self._heap, (worth.rank, key))
        if len(self._heap) > 2 * len(self._held) + STALE_MAX:
            self._heap = [(other.rank, name) for name, other in self._held.items()]
            heapq.heapify(self._heap)

    def _replace(self, key: bytes, worth: _Worth, entry: Entry) -> None:
        self._bytes += len(entry.value) - len(worth.entry.value)
        self._depend(worth.entry, -1)
        worth.entry = entry
        self._depend(entry, 1)
        self._rank(key, worth)
        self._make_room(0, 0)

    def _depend(self, entry: Entry, count: int) -> None:
        for reference in entry.dependencies:
            self._dependants[reference] += count
            if not self._dependants[reference]:
                del self._dependants[reference]

    def _make_room(self, entries: int, size: int) -> None:
        bounds = self._bounds
        while len(self._held) + entries > bounds.entries_max or self._bytes + size > bounds.bytes_max:
            key = self._least()
            self.remove(key)
            self._on_out(key)

    def _least(self) -> bytes:
        """The key of the lowest score."""
        heap = self._heap
        passed: list[tuple[float, bytes]] = []
        least: tuple[float, bytes] | None = None
        while heap and (least is None or heap[0] <= least):
            rank, key = heapq.heappop(heap)
            worth = self._held.get(key)
            if worth is None or rank > worth.rank:
                continue  # it has gone, or another place in the heap is its own
            if rank < worth.rank:
                heapq.heappush(heap, (worth.rank, key))
                continue
            passed.append((rank, key))
            found = (rank + log2(self._weight(key)), key)
            if least is None or found < least:
                least = found
        assert least is not None, "every entry has a place in the heap"
        for place in passed:
            heapq.heappush(heap, place)
        return least[1]

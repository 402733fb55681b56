"""What is due when, by key. Setting a key again moves it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Final

Key = tuple[str, str]
"""What is due, and for which node, probe or proposal."""

_SLACK: Final = 64
"""The heap is rebuilt when it holds so many more moved and cancelled entries than live ones."""


class Timers:
    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: Key) -> bool:
        return key in self._at

    def set(self, key: Key, at: float) -> None:
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + _SLACK:
            self._heap = [(at, key) for key, at in self._at.items()]
            heapq.heapify(self._heap)

    def set_earlier(self, key: Key, at: float) -> None:
        """Move it only if that brings it forward."""
        if at < self._at.get(key, math.inf):
            self.set(key, at)

    def cancel(self, key: Key) -> None:
        self._at.pop(key, None)

    def clear(self) -> None:
        self._at.clear()
        self._heap.clear()

    def shift(self, by: float) -> None:
        """Everything is due so much later: the time was not lived through."""
        self._at = {key: at + by for key, at in self._at.items()}
        self._heap = [(at, key) for key, at in self._at.items()]
        heapq.heapify(self._heap)

    def next_at(self) -> float:
        """Infinity if nothing is ever due."""
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def due(self, now: float) -> Iterator[Key]:
        """Each key whose time has come, once; what is set meanwhile for `now` or earlier comes too."""
        while self.next_at() <= now:
            _, key = heapq.heappop(self._heap)
            del self._at[key]
            yield key

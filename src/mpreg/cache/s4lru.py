"""S4LRU (R-C5): four equal segments, each in order of use.

A new entry goes to the head of S0, a hit moves it to the head of the next segment (in S3: its own). What overflows a
segment moves from its tail to the head of the one below, and what overflows S0 is out. So an entry that was never
asked for again passes through a quarter of the room at most. Every operation takes a bounded number of steps, unless
a large entry pushes out several small ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from mpreg.cache.bounds import Bounds, OnOut
from mpreg.cache.entry import Entry

SEGMENTS: Final = 4
TOP: Final = SEGMENTS - 1


class S4Lru:
    """The first of an ordered dict is the tail of its segment, the last one its head."""

    __slots__ = ("_bytes", "_bytes_max", "_entries_max", "_of", "_on_out", "_segments", "_top")

    def __init__(self, bounds: Bounds, on_out: OnOut) -> None:
        shares = [bounds.share(segment, SEGMENTS) for segment in range(SEGMENTS)]
        self._entries_max = [share.entries_max for share in shares]
        self._bytes_max = [share.bytes_max for share in shares]
        self._segments: list[OrderedDict[bytes, Entry]] = [OrderedDict() for _ in range(SEGMENTS)]
        self._top = self._segments[TOP]
        self._bytes = [0] * SEGMENTS
        self._of: dict[bytes, int] = {}
        self._on_out = on_out

    def get(self, key: bytes, now_ms: int) -> Entry | None:
        entry = self._top.get(key)
        if entry is not None:
            self._top.move_to_end(key)
            return entry
        segment = self._of.get(key)
        if segment is None:
            return None
        entry = self._segments[segment].pop(key)
        self._bytes[segment] -= len(entry.value)
        self._insert(segment + 1, key, entry)
        return entry

    def peek(self, key: bytes) -> Entry | None:
        segment = self._of.get(key)
        return None if segment is None else self._segments[segment][key]

    def put(self, key: bytes, entry: Entry) -> bool:
        segment = self._of.get(key)
        if segment is not None:
            self._take(segment, key)
        if not self._fits(entry):
            self._of.pop(key, None)
            return False
        self._insert(0 if segment is None else min(segment + 1, TOP), key, entry)
        return True

    def renew(self, key: bytes, entry: Entry) -> bool:
        segment = self._of.get(key)
        if segment is None or not self._fits(entry):
            return False
        held = self._segments[segment]
        self._bytes[segment] += len(entry.value) - len(held[key].value)
        held[key] = entry
        self._settle(segment)
        return True

    def remove(self, key: bytes) -> bool:
        segment = self._of.pop(key, None)
        if segment is None:
            return False
        self._take(segment, key)
        return True

    def keys(self) -> Iterator[bytes]:
        return iter(list(self._of))

    def clear(self) -> None:
        for segment in self._segments:
            segment.clear()
        self._bytes = [0] * SEGMENTS
        self._of.clear()

    def __len__(self) -> int:
        return len(self._of)

    @property
    def size_bytes(self) -> int:
        return sum(self._bytes)

    def segments(self) -> list[list[bytes]]:
        """The keys of S0 to S3, each from head to tail."""
        return [list(reversed(segment)) for segment in self._segments]

    def _fits(self, entry: Entry) -> bool:
        return len(entry.value) <= self._bytes_max[TOP] and self._entries_max[0] > 0

    def _take(self, segment: int, key: bytes) -> None:
        self._bytes[segment] -= len(self._segments[segment].pop(key).value)

    def _insert(self, segment: int, key: bytes, entry: Entry) -> None:
        self._of[key] = segment
        held = self._segments[segment]
        held[key] = entry
        self._bytes[segment] += len(entry.value)
        if len(held) > self._entries_max[segment] or self._bytes[segment] > self._bytes_max[segment]:
            self._settle(segment)

    def _settle(self, segment: int) -> None:
        """What is too much moves down, from the tail of each to the head of the one below."""
        for at in range(segment, -1, -1):
            held, entries_max, bytes_max = self._segments[at], self._entries_max[at], self._bytes_max[at]
            while len(held) > entries_max or self._bytes[at] > bytes_max:
                key, entry = held.popitem(last=False)
                self._bytes[at] -= len(entry.value)
                if at:
                    self._segments[at - 1][key] = entry
                    self._bytes[at - 1] += len(entry.value)
                    self._of[key] = at - 1
                else:
                    del self._of[key]
                    self._on_out(key)

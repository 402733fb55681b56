"""W-TinyLFU: for streams that S4LRU can't serve, as a scan or a loop that is larger than the room.

New entries pass through a small window. What leaves the window gets into the main part only by being asked for more
often, lately, than the entry that would have to go for it. The main part is in two halves, entries that were asked for
again in the larger one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from mpreg.cache.bounds import Bounds, OnOut
from mpreg.cache.entry import Entry
from mpreg.cache.frequency import Frequency

WINDOW_PARTS: Final = 100
"""The window has a hundredth of the room."""
PROTECTED: Final = 0.8
"""Of the main part, for what was asked for there."""


class WTinyLfu:
    """Each part in order of use, the first is the next to go."""

    __slots__ = (
        "_bounds",
        "_bytes",
        "_frequency",
        "_on_out",
        "_probation",
        "_protected",
        "_protected_bounds",
        "_protected_bytes",
        "_window",
        "_window_bounds",
        "_window_bytes",
    )

    def __init__(self, bounds: Bounds, on_out: OnOut) -> None:
        window_max = max(1, bounds.entries_max // WINDOW_PARTS)
        self._bounds = bounds
        self._window_bounds = Bounds(window_max, bounds.bytes_max // WINDOW_PARTS)
        self._protected_bounds = Bounds(
            int((bounds.entries_max - window_max) * PROTECTED),
            int((bounds.bytes_max - self._window_bounds.bytes_max) * PROTECTED),
        )
        self._on_out = on_out
        self._frequency = Frequency(bounds.entries_max)
        self._window: OrderedDict[bytes, Entry] = OrderedDict()
        self._probation: OrderedDict[bytes, Entry] = OrderedDict()
        self._protected: OrderedDict[bytes, Entry] = OrderedDict()
        self._bytes = self._window_bytes = self._protected_bytes = 0

    def get(self, key: bytes, now_ms: int) -> Entry | None:
        self._frequency.add(key)
        protected = self._protected
        entry = protected.get(key)
        if entry is not None:
            protected.move_to_end(key)
            return entry
        entry = self._probation.pop(key, None)
        if entry is not None:
            self._protect(key, entry)
            return entry
        entry = self._window.get(key)
        if entry is not None:
            self._window.move_to_end(key)
        return entry

    def peek(self, key: bytes) -> Entry | None:
        return self._protected.get(key) or self._probation.get(key) or self._window.get(key)

    def put(self, key: bytes, entry: Entry) -> bool:
        if not self._fits(entry):
            self.remove(key)
            return False
        if self.renew(key, entry):
            if key in self:
                self.get(key, 0)
            return True
        self._frequency.add(key)
        self._window[key] = entry
        self._bytes += len(entry.value)
        self._window_bytes += len(entry.value)
        self._settle()
        return True

    def renew(self, key: bytes, entry: Entry) -> bool:
        if not self._fits(entry):
            return False
        for part in (self._protected, self._probation, self._window):
            old = part.get(key)
            if old is not None:
                grown = len(entry.value) - len(old.value)
                part[key] = entry
                self._bytes += grown
                if part is self._window:
                    self._window_bytes += grown
                elif part is self._protected:
                    self._protected_bytes += grown
                self._settle()
                return True
        return False

    def remove(self, key: bytes) -> bool:
        entry = self._protected.pop(key, None)
        if entry is not None:
            self._protected_bytes -= len(entry.value)
        else:
            entry = self._window.pop(key, None)
            if entry is not None:
                self._window_bytes -= len(entry.value)
            else:
                entry = self._probation.pop(key, None)
        if entry is None:
            return False
        self._bytes -= len(entry.value)
        return True

    def keys(self) -> Iterator[bytes]:
        return iter([*self._protected, *self._probation, *self._window])

    def clear(self) -> None:
        for part in (self._protected, self._probation, self._window):
            part.clear()
        self._bytes = self._window_bytes = self._protected_bytes = 0

    def __contains__(self, key: bytes) -> bool:
        return key in self._protected or key in self._probation or key in self._window

    def __len__(self) -> int:
        return len(self._protected) + len(self._probation) + len(self._window)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def _fits(self, entry: Entry) -> bool:
        return len(entry.value) <= self._bounds.bytes_max and self._bounds.entries_max > 0

    def _protect(self, key: bytes, entry: Entry) -> None:
        """Asked for again in the main part."""
        self._protected[key] = entry
        self._protected_bytes += len(entry.value)
        bounds = self._protected_bounds
        while len(self._protected) > bounds.entries_max or self._protected_bytes > bounds.bytes_max:
            lesser, other = self._protected.popitem(last=False)
            self._protected_bytes -= len(other.value)
            self._probation[lesser] = other

    def _settle(self) -> None:
        bounds = self._window_bounds
        while len(self._window) > bounds.entries_max or self._window_bytes > bounds.bytes_max:
            key, entry = self._window.popitem(last=False)
            self._window_bytes -= len(entry.value)
            self._admit(key, entry)
        while self._over(0, 0):  # an entry has grown where it is
            self._give_up()

    def _admit(self, key: bytes, entry: Entry) -> None:
        """Into the main part, if each entry that has to go for it is asked for less often."""
        size = len(entry.value)
        self._bytes -= size
        wanted = self._frequency.of(key)
        while self._over(1, size):
            victim = next(iter(self._probation or self._protected or self._window), None)
            if victim is None or self._frequency.of(victim) >= wanted:
                self._on_out(key)
                return
            self._give_up()
        self._probation[key] = entry
        self._bytes += size

    def _over(self, entries: int, size: int) -> bool:
        """Would there be too much with so much more?"""
        return len(self) + entries > self._bounds.entries_max or self._bytes + size > self._bounds.bytes_max

    def _give_up(self) -> None:
        part = self._probation or self._protected or self._window
        key, entry = part.popitem(last=False)
        self._bytes -= len(entry.value)
        if part is self._protected:
            self._protected_bytes -= len(entry.value)
        elif part is self._window:
            self._window_bytes -= len(entry.value)
        self._on_out(key)

"""What a client holds of the cache itself, kept honest by what the node tells it (`cache-watch`).

A value is held only while the node tells of changes, and only if nothing newer was heard of its key since it was asked
for; when the connection breaks, or the node says that something was lost, all of it is forgotten.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Raw

from mpreg.wire.cache import CacheChanged

NearKey = tuple[str, str, str]
"""Namespace, identifier, version."""

BYTES_MAX: Final = 64_000_000


class Near(msgspec.Struct, frozen=True):
    value: Raw
    version: int
    until: float
    """By the clock of this process; infinite if it does not end."""


class NearCache:
    """Bounded by entries and bytes; what was not used for longest goes first."""

    def __init__(self, entries_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.entries_max = entries_max
        self.is_watched = False
        self._clock = clock
        self._held: OrderedDict[NearKey, Near] = OrderedDict()
        self._bytes = 0
        self._asking: dict[NearKey, list[int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: NearKey) -> Near | None:
        near = self._held.get(key)
        if near is None:
            return None
        if self._clock() >= near.until:
            self._remove(key)
            return None
        self._held.move_to_end(key)
        return near

    # Between `asking` and `answered`, changes of the key are minded.

    def asking(self, key: NearKey) -> None:
        entry = self._asking.setdefault(key, [0, 0])
        entry[0] += 1

    def answered(self, key: NearKey, near: Near | None) -> None:
        entry = self._asking[key]
        entry[0] -= 1
        if not entry[0]:
            del self._asking[key]
        if near is not None and self.is_watched and near.version >= entry[1]:
            self._remove(key)
            self._held[key] = near
            self._bytes += len(memoryview(near.value))
            while len(self._held) > self.entries_max or self._bytes > BYTES_MAX:
                self._remove(next(iter(self._held)))

    def changed(self, told: CacheChanged) -> None:
        if told.lost:
            self.forget()
        for change in told.changes:
            self.outdated((change.namespace, change.identifier, change.key_version), change.version)

    def outdated(self, key: NearKey, version: int) -> None:
        asking = self._asking.get(key)
        if asking is not None:
            asking[1] = max(asking[1], version)
        held = self._held.get(key)
        if held is not None and held.version < version:
            self._remove(key)

    def forget(self) -> None:
        self._held.clear()
        self._bytes = 0
        for asking in self._asking.values():
            asking[1] = 2**63

    def _remove(self, key: NearKey) -> None:
        near = self._held.pop(key, None)
        if near is not None:
            self._bytes -= len(memoryview(near.value))

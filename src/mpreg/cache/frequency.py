"""How often keys were asked for lately, in a few bits a key: a counting sketch that forgets.

The estimate is never below the count since the last halving up to 15, and above it only when other keys fall on the
same counters.
"""

from __future__ import annotations

import zlib
from typing import Final

COUNT_MAX: Final = 15
COUNTERS_A_KEY: Final = 8
SAMPLES_A_KEY: Final = 10
"""After so many uses a key of capacity all counts are halved: what was asked for long ago counts less."""
KEYS_MAX: Final = 1 << 21

_HALVED: Final = bytes(count >> 1 for count in range(256))
_SPREAD: Final = 0x9E3779B97F4A7C15


class Frequency:
    __slots__ = ("_added", "_counters", "_mask", "_samples_max")

    def __init__(self, keys: int) -> None:
        """For about so many keys that are worth keeping."""
        keys = min(max(keys, 16), KEYS_MAX)
        size = 1 << (keys * COUNTERS_A_KEY - 1).bit_length()
        self._counters = bytearray(size)
        self._mask = size - 1
        self._samples_max = keys * SAMPLES_A_KEY
        self._added = 0

    def add(self, key: bytes) -> None:
        """Only the lowest of a key's counters grow: the others already count someone else, too."""
        counters = self._counters
        spread = zlib.crc32(key) * _SPREAD
        first = spread >> 12 & self._mask
        second = spread >> 36 & self._mask
        one, other = counters[first], counters[second]
        if one <= other:
            if one == COUNT_MAX:
                return
            counters[first] = one + 1
        if other <= one:
            counters[second] = other + 1
        self._added += 1
        if self._added >= self._samples_max:
            self._counters = counters.translate(_HALVED)
            self._added >>= 1

    def of(self, key: bytes) -> int:
        spread = zlib.crc32(key) * _SPREAD
        one, other = self._counters[spread >> 12 & self._mask], self._counters[spread >> 36 & self._mask]
        return min(other, one)

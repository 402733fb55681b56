"""Slots of a cluster: which one a key is in, and who serves which. Pure.

A key's slot is CRC16 (XMODEM) of it modulo 16384; of a key with `{…}` only of what is inside the first such pair, if
that is not empty. So keys that belong together carry the same tag.
"""

from __future__ import annotations

import functools
from binascii import crc_hqx
from itertools import count

SLOTS = 16384


def slot_of(key: bytes) -> int:
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


@functools.lru_cache(maxsize=1024)
def tag_for_slot(slot: int) -> bytes:
    """A short text that lies in this slot, to be used as a hash tag."""
    return next(tag for tag in (b"%x" % n for n in count()) if slot_of(tag) == slot)

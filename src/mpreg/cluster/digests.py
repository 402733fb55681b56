"""Digests of a set of items that change one at a time: the sum of the items' hashes, in parts, so that two nodes find
out cheaply whether and where they differ. It does not depend on the order of the changes."""

from __future__ import annotations

import zlib
from hashlib import blake2b
from typing import Final

PARTS: Final = 256
_MASK: Final = 2**64 - 1


def item_hash(*fields: object) -> int:
    """Of one item. Fields are told apart by their lengths, so that no two items look alike."""
    text = b"".join(_field(field) for field in fields)
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def _field(field: object) -> bytes:
    data = field if isinstance(field, bytes) else str(field).encode("utf-8", "surrogatepass")
    return b"%d:%s" % (len(data), data)


def part_of(name: str) -> int:
    return zlib.crc32(name.encode("utf-8", "surrogatepass")) % PARTS


class Digest:
    """Of all items (`total`), and of each part."""

    __slots__ = ("parts", "total")

    def __init__(self) -> None:
        self.total = 0
        self.parts = [0] * PARTS

    def add(self, part: int, value: int) -> None:
        self.total = (self.total + value) & _MASK
        self.parts[part] = (self.parts[part] + value) & _MASK

    def remove(self, part: int, value: int) -> None:
        self.add(part, _MASK + 1 - value)

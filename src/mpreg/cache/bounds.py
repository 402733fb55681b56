"""What a policy is told, and what it tells: limits, and the entries that it gives up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from mpreg.cache.entry import Entry

OnOut = Callable[[bytes], None]
"""A key that went out because there was no room."""


class Bounds(msgspec.Struct, frozen=True):
    """Neither is ever exceeded, not within an operation either. Bytes are those of the encoded values."""

    entries_max: int
    bytes_max: int

    def share(self, part: int, parts: int) -> Bounds:
        """One of `parts` that are as equal as whole numbers allow; what is left over goes to the lower ones."""
        entries, one_more = divmod(self.entries_max, parts)
        octets, byte_more = divmod(self.bytes_max, parts)
        return Bounds(entries + (part < one_more), octets + (part < byte_more))


class Policy(Protocol):
    """Entries by key, and the order in which they go when there is no room. All of it in memory, none of it waits."""

    def get(self, key: bytes, now_ms: int) -> Entry | None:
        """Counts as a use."""

    def peek(self, key: bytes) -> Entry | None:
        """Counts as nothing."""

    def put(self, key: bytes, entry: Entry) -> bool:
        """Replaces what is there, which counts as a use of it. False if the entry alone is over the limit: then it is
        not kept, and what was there has gone.
        """

    def renew(self, key: bytes, entry: Entry) -> bool:
        """Replaces what is there without counting as a use; False if nothing is, or the entry is over the limit."""

    def remove(self, key: bytes) -> bool: ...

    def keys(self) -> Iterator[bytes]: ...

    def clear(self) -> None: ...

    def __len__(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

"""What the node asks of a level that it keeps itself: memory (L1) and, with the same words, disk (L2).

Keys are the bytes of `key.store_key`. A level is bounded by entries and by bytes at every moment, and tells its owner
what it gave up and why. It never serves what `Entry.is_alive` denies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, Protocol

from mpreg.cache.entry import Entry

Evicted = Literal["capacity", "expired", "too_large", "corrupt"]
"""Why a level gave up an entry unasked: no room, its time was over, it alone is over the limit, it can't be read."""

OnEvicted = Callable[[bytes, Evicted], None]


class Memory(Protocol):
    """L1. None of this waits for anything."""

    def get(self, key: bytes, now_ms: int) -> Entry | None:
        """Counts as a use."""

    def peek(self, key: bytes) -> Entry | None:
        """Counts as nothing, and may be over its time."""

    def put(self, key: bytes, entry: Entry) -> None:
        """Whatever was there is replaced; an entry that alone is over the limit is not kept, nor what it replaces."""

    def renew(self, key: bytes, entry: Entry) -> bool:
        """Replace in place, without counting as a use; False if there is nothing to replace."""

    def remove(self, key: bytes) -> bool: ...

    def keys(self) -> Iterator[bytes]:
        """A snapshot: the level may change while it is read."""

    def clear(self) -> None: ...

    def __len__(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


class Disk(Protocol):
    """L2. Survives a restart; what can't be read back whole is dropped, never served."""

    async def get(self, key: bytes, now_ms: int) -> Entry | None: ...

    async def put(self, key: bytes, entry: Entry) -> None:
        """May do nothing when the disk is full or broken; it never raises."""

    async def remove(self, key: bytes) -> bool: ...

    async def keys(self) -> list[bytes]: ...

    async def clear(self) -> None: ...

    async def close(self) -> None: ...

"""Removes what matches a pattern, carries a tag, or depends on something; and what depends on that, and so on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from mpreg.cache.coherence import Update
from mpreg.cache.indexes import dependency_index, tag_index
from mpreg.cache.key import reference_of
from mpreg.cache.levels import Levels
from mpreg.cache.patterns import KeyPattern
from mpreg.cache.scanning import Scanner
from mpreg.errors import CacheError

AT_ONCE: Final = 200


class Removed(msgspec.Struct, frozen=True):
    count: int
    cursor: str | None = None
    """There is more, from here on."""


class Invalidation:
    """One `invalidate` or `delete`. It stops at `most` keys, or when the `deadline` (of the loop's clock) has passed;
    what depends on what it has removed goes all the same."""

    def __init__(self, levels: Levels, scanner: Scanner, *, cascade: bool, most: int, deadline: float) -> None:
        self._levels = levels
        self._scanner = scanner
        self._cascade = cascade
        self._most = most
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._changed: deque[str] = deque()
        self._seen: set[str] = set()
        self.count = 0

    async def pattern(self, pattern: KeyPattern, cursor: str | None) -> Removed:
        begun_ms = self._levels.clock.now_ms()
        while True:
            page = await self._scanner.page(pattern.glob, pattern.matches, cursor)
            cursor = page.cursor
            await self._remove([("", key) for key in page.keys])
            if cursor is None or self._is_over():
                break
        await self._follow()
        # A node may hold what the store has no more room for.
        update = Update("invalidate", b"", begun_ms * 1000, pattern=pattern.text)
        self._levels.heard(update)
        self._levels.announce(update)
        return Removed(self.count, cursor)

    async def tag(self, tag: str) -> Removed:
        rest = await self._index(tag_index(tag))
        await self._follow()
        return Removed(self.count, "more" if rest else None)

    async def dependency(self, dependency: str) -> Removed:
        self._seen.add(dependency)
        rest = await self._index(dependency_index(dependency))
        await self._follow()
        return Removed(self.count, "more" if rest else None)

    async def key(self, key: bytes) -> Removed:
        await self._remove([("", key)])
        await self._follow()
        return Removed(self.count)

    async def keys(self, pages: AsyncIterator[list[bytes]]) -> Removed:
        async for page in pages:
            await self._remove([("", key) for key in page])
        await self._follow()
        return Removed(self.count)

    async def _follow(self) -> None:
        """What depends on what has been removed, to the end: half a chain would be worse than none."""
        while self._changed:
            reference = self._changed.popleft()
            if reference not in self._seen:
                self._seen.add(reference)
                if await self._index(dependency_index(reference)):
                    raise CacheError(
                        "CACHE_TOO_LARGE",
                        f"over {self._most} keys depend on what was removed; {self.count} are gone",
                        state_changed=True,
                        limit=self._most,
                        count=self.count,
                    )

    async def _index(self, index: bytes) -> bool:
        """Whether something is left."""
        indexes = self._levels.indexes
        while named := await indexes.named(index, AT_ONCE):
            if self.count >= self._most:
                return True
            await self._remove(named)
            await indexes.drop(index, named)
        return False

    async def _remove(self, named: list[tuple[str, bytes]]) -> None:
        for first in range(0, len(named), AT_ONCE):
            part = named[first : first + AT_ONCE]
            gone = await asyncio.gather(*(self._remove_one(nonce, key) for nonce, key in part))
            self.count += sum(gone)

    async def _remove_one(self, nonce: str, key: bytes) -> bool:
        """Only the write that an index has named, if one has; a structure has no nonce."""
        if nonce:
            written = await self._levels.delete(key, guard="n", guarded=nonce)
        else:
            written = await self._levels.delete(key)
        if written is None or not written.changed:
            return False
        if self._cascade:
            self._changed.append(reference_of(key))
        return True

    def _is_over(self) -> bool:
        return self.count >= self._most or self._loop.time() >= self._deadline

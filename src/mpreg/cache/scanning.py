"""Goes through the keys of the store page by page (R-C8: SCAN, never KEYS), with a cursor that a client can keep."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal

import msgspec

from mpreg.cache.record import HEADER_BYTES, unpack_header
from mpreg.cache.store_level import StoreLevel, unavailable
from mpreg.errors import CacheError, StoreError
from mpreg.store import ServerLink, StoreReplyError

COUNT: Final = 500
_CURSOR: Final = re.compile(r"([0-9a-f]{8})\.([0-9]{1,5})\.([0-9]{1,20})")

Kind = Literal["value", "set", "list", "map", "sorted_set"]
KINDS: Final[dict[bytes, Kind]] = {b"set": "set", b"list": "list", b"hash": "map", b"zset": "sorted_set"}


class Page(msgspec.Struct, frozen=True):
    keys: list[bytes]
    cursor: str | None
    """None: that was all."""


class Seen(msgspec.Struct, frozen=True):
    """What is known of one key without its value. A structure has no version, uses or age."""

    key: bytes
    kind: Kind
    version: int
    size_bytes: int
    ttl_remaining: float | None
    access_count: int | None
    age: float | None

    def fields(self) -> dict[str, float | None]:
        """For conditions. What has no end has endless time left."""
        left = float("inf") if self.ttl_remaining is None else self.ttl_remaining
        return {
            "ttl_remaining": left,
            "access_count": self.access_count,
            "size_bytes": self.size_bytes,
            "age": self.age,
        }


class Scanner:
    def __init__(self, level: StoreLevel) -> None:
        self._level = level

    async def page(self, glob: bytes, matches: Callable[[bytes], bool], cursor: str | None) -> Page:
        """One step; it may find nothing and yet not be the last."""
        links = self._links()
        layout = await self._layout(links)
        number, at = self._read(cursor, layout, len(links)) if cursor else (0, b"0")
        try:
            at, found = await links[number].command(b"SCAN", at, b"COUNT", COUNT, b"MATCH", glob)
        except StoreError as error:
            raise unavailable(error) from None
        if at == b"0":
            number += 1
        after = f"{layout}.{number}.{at.decode()}" if number < len(links) else None
        return Page([key for key in dict.fromkeys(found) if matches(key)], after)

    async def pages(self, glob: bytes, matches: Callable[[bytes], bool]) -> AsyncIterator[list[bytes]]:
        """All of them. A key that is there all the time comes, once or several times."""
        cursor: str | None = None
        while True:
            page = await self.page(glob, matches, cursor)
            if page.keys:
                yield page.keys
            cursor = page.cursor
            if cursor is None:
                return

    async def look(self, keys: list[bytes]) -> list[Seen]:
        """What is still there of them, and is no tombstone."""
        found = await asyncio.gather(*map(self._look, keys))
        return [seen for seen in found if seen is not None]

    async def _look(self, key: bytes) -> Seen | None:
        now = self._level.clock.now_ms()
        send = self._level.store.send
        try:
            head, size = await asyncio.gather(send(b"GETRANGE", key, 0, HEADER_BYTES - 1), send(b"STRLEN", key))
        except StoreReplyError as error:
            if error.code == "STORE_WRONG_TYPE":
                return await self._look_at_structure(key)
            raise unavailable(error) from None
        except StoreError as error:
            raise unavailable(error) from None
        header = unpack_header(head)
        if header is None:
            return None
        return Seen(
            key,
            "value",
            header.version,
            size - HEADER_BYTES - header.meta_bytes,
            max(0.0, (header.expires_ms - now) / 1000) if header.expires_ms else None,
            header.uses,
            max(0.0, (now - header.created_ms) / 1000),
        )

    async def _look_at_structure(self, key: bytes) -> Seen | None:
        send = self._level.store.send
        kind, left, size = await asyncio.gather(
            send(b"TYPE", key), send(b"PTTL", key), send(b"MEMORY", b"USAGE", key, b"SAMPLES", 5)
        )
        if kind not in KINDS or left == -2:
            return None
        return Seen(key, KINDS[kind], 0, size or 0, left / 1000 if left >= 0 else None, None, None)

    def _links(self) -> list[ServerLink]:
        self._level.check()
        return sorted(self._level.store.primaries(), key=lambda link: str(link.address))

    async def _layout(self, links: list[ServerLink]) -> str:
        """Which servers there are: a cursor means nothing to others, nor to one that was started anew."""
        try:
            said = await asyncio.gather(*(link.command(b"INFO", b"server") for link in links))
        except StoreError as error:
            raise unavailable(error) from None
        runs = b"".join(match[0] for each in said if (match := re.search(rb"run_id:\w+", each)))
        return f"{zlib.crc32(runs):08x}"

    def _read(self, cursor: str, layout: str, links: int) -> tuple[int, bytes]:
        found = _CURSOR.fullmatch(cursor)
        if found is None or found[1] != layout or int(found[2]) >= links:
            raise CacheError("CACHE_STALE_CURSOR", "the cursor is none of this store as it is now; begin anew")
        return int(found[2]), found[3].encode()

"""A namespace as bytes, and back: values with what is known of them, structures by what is in them, TTLs with both.

Each page is whole in itself and checked by its sum before anything is written; it says nothing of any store's version.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any, Final, Literal

import msgspec

from mpreg.cache.key import cache_key, check_labels, invalid, key_bytes, parse_key
from mpreg.cache.levels import Levels
from mpreg.cache.record import unpack
from mpreg.cache.scanning import KINDS
from mpreg.cache.settings import CacheSettings
from mpreg.cache.store_level import script, unavailable
from mpreg.errors import CacheError, StoreError
from mpreg.store import StoreReplyError
from mpreg.wire.cache import MergeStrategy

FORMAT: Final = "mpreg-cache-1"
PAGE_BYTES_MAX: Final = 64_000_000
_PATH: Final = "$.namespace_operation.data"

_RESTORE: Final = script("restore", "structure")
_READ: Final[dict[bytes, tuple[Any, ...]]] = {
    b"set": (b"SMEMBERS",),
    b"list": (b"LRANGE", 0, -1),
    b"hash": (b"HGETALL",),
    b"zset": (b"ZRANGE", 0, -1, b"WITHSCORES"),
}


class Saved(msgspec.Struct, frozen=True, array_like=True):
    identifier: str
    version: str
    kind: Literal["value", "set", "list", "map", "sorted_set"]
    ttl_ms: int
    """Left; 0: no end."""
    items: tuple[bytes, ...]
    """One value; or what a structure holds, as the store gives it."""
    written: int = 0
    """Version of the value."""
    cost_ms: float = 0.0
    tags: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()


class _Page(msgspec.Struct, frozen=True):
    format: str
    namespace: str
    checksum: int
    records: bytes


class Backup:
    def __init__(self, levels: Levels, settings: CacheSettings) -> None:
        self._levels = levels
        self._settings = settings

    async def dump(self, namespace: str, keys: list[bytes], compression: str) -> tuple[bytes, int]:
        saved = [each for each in await asyncio.gather(*map(self._save, keys)) if each is not None]
        records = msgspec.msgpack.encode(saved)
        if len(records) > PAGE_BYTES_MAX:
            raise CacheError(
                "CACHE_TOO_LARGE",
                f"{len(keys)} keys have {len(records)} bytes; ask for fewer at once (`limit`)",
                limit=PAGE_BYTES_MAX,
            )
        page = msgspec.msgpack.encode(_Page(FORMAT, namespace, zlib.crc32(records), records))
        return (gzip.compress(page, 6, mtime=0) if compression == "gzip" else page), len(saved)

    async def _save(self, key: bytes) -> Saved | None:
        name = parse_key(key)
        send = self._levels.store.store.send
        try:
            left, data = await asyncio.gather(send(b"PTTL", key), send(b"GET", key))
        except StoreReplyError as error:
            if error.code != "STORE_WRONG_TYPE":
                raise unavailable(error) from None
            return await self._save_structure(key)
        except StoreError as error:
            raise unavailable(error) from None
        record = None if data is None else unpack(data)
        if record is None:
            return None
        entry = record.entry
        return Saved(
            name.identifier,
            name.version,
            "value",
            max(0, left),
            (entry.value,),
            entry.version,
            entry.cost_ms,
            entry.tags,
            entry.dependencies,
        )

    async def _save_structure(self, key: bytes) -> Saved | None:
        store, name = self._levels.store.store, parse_key(key)
        try:
            kind = await store.command(b"TYPE", key)
            if kind not in _READ:
                return None
            verb, *rest = _READ[kind]
            left, items = await asyncio.gather(store.send(b"PTTL", key), store.send(verb, key, *rest))
        except StoreError as error:
            raise unavailable(error) from None
        return Saved(name.identifier, name.version, KINDS[kind], max(0, left), tuple(items)) if items else None

    async def restore(self, namespace: str, data: bytes, merge: MergeStrategy, dry_run: bool) -> dict[str, Any]:
        """`skip` leaves what is there, `replace` does not, `newer` asks the versions: a structure stays."""
        saved = self._read(data)
        restored = skipped = 0
        if dry_run:
            return {"restored": 0, "skipped": 0, "found": len(saved)}
        for first in range(0, len(saved), 200):
            done = await asyncio.gather(
                *(self._restore_one(namespace, each, merge) for each in saved[first : first + 200])
            )
            restored += sum(done)
            skipped += len(done) - sum(done)
        return {"restored": restored, "skipped": skipped}

    def _read(self, data: bytes) -> list[Saved]:
        try:
            if data[:2] == b"\x1f\x8b":
                unzip = zlib.decompressobj(wbits=31)
                data = unzip.decompress(data, PAGE_BYTES_MAX + 1)
                if len(data) > PAGE_BYTES_MAX or not unzip.eof:
                    raise ValueError(f"it is cut off, or over {PAGE_BYTES_MAX} bytes when unpacked")
            page = msgspec.msgpack.decode(data, type=_Page)
            if page.format != FORMAT or zlib.crc32(page.records) != page.checksum:
                raise ValueError("another format, or its sum is wrong")
            saved = msgspec.msgpack.decode(page.records, type=list[Saved])
        except (ValueError, msgspec.DecodeError, zlib.error) as problem:
            raise invalid(_PATH, f"no backup of a namespace: {problem}") from None
        for each in saved:
            cache_key("any", each.identifier, each.version, path=_PATH)
            check_labels(each.tags, _PATH)
            check_labels(each.dependencies, _PATH)
            if (
                each.ttl_ms < 0
                or not 0 <= each.written < 2**53
                or not each.items
                or (each.kind == "value" and len(each.items) != 1)
            ):
                raise invalid(_PATH, f"{each.identifier!r:.60}: not a record of a backup")
        return saved

    async def _restore_one(self, namespace: str, saved: Saved, merge: MergeStrategy) -> bool:
        key = key_bytes(cache_key(namespace, saved.identifier, saved.version))
        if saved.kind != "value":
            return await self._restore_structure(key, saved, merge)
        if merge == "skip" and await self._levels.store.command(b"EXISTS", key) and not await self._is_gone(key):
            return False
        if merge == "replace":
            with_version = 0
            await self._make_room(key)
        else:
            with_version = saved.written if merge == "newer" else 0
        try:
            written = await self._levels.put(
                key,
                saved.items[0],
                ttl_ms=saved.ttl_ms,
                cost_ms=saved.cost_ms,
                tags=saved.tags,
                dependencies=saved.dependencies,
                version=with_version,
            )
        except CacheError as error:
            if error.code == "CACHE_WRONG_TYPE":
                return False
            raise
        return written is not None

    async def _restore_structure(self, key: bytes, saved: Saved, merge: MergeStrategy) -> bool:
        kind = next(of for of, name in KINDS.items() if name == saved.kind)
        answer = await self._levels.store.run(
            _RESTORE,
            key,
            "restore",
            "1",
            saved.ttl_ms,
            self._settings.elements_max,
            kind,
            "r" if merge == "replace" else "",
            *saved.items,
        )
        if answer[0] == 1:
            self._levels.changed(key, 2**53 - 1, None)
        return bool(answer[0] == 1)

    async def _is_gone(self, key: bytes) -> bool:
        try:
            return await self._levels.store.version(key) == 0
        except CacheError as error:
            if error.code == "CACHE_WRONG_TYPE":
                return False
            raise

    async def _make_room(self, key: bytes) -> None:
        """A structure is not overwritten by a value unless it is deleted."""
        try:
            await self._levels.store.version(key)
        except CacheError as error:
            if error.code != "CACHE_WRONG_TYPE":
                raise
            await self._levels.delete(key)

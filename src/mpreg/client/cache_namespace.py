"""What concerns all keys of a namespace: list, count, clear, back up, restore; and who is told of changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from mpreg.client.caches import Caches
from mpreg.wire.cache import (
    CacheAnalytics,
    CacheChanged,
    CacheOptions,
    CacheStatistics,
    MergeStrategy,
    NamespaceOperation,
)

T = TypeVar("T")


class CacheNamespace:
    """A part of `Cache`, which offers its methods as its own."""

    def __init__(self, caches: Caches, namespace: str) -> None:
        self.namespace = namespace
        self._caches = caches

    async def keys(
        self, pattern: str = "*", *, conditions: Mapping[str, Any] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """What there is, with kind, size, TTL and uses; page by page. A key may come twice."""
        cursor: Any = UNSET
        while True:
            result = await self._namespace(
                "list_keys", pattern=pattern, limit=1_000, cursor=cursor, conditions=or_unset(_plain(conditions))
            )
            for key in result["keys"]:
                yield key
            if (cursor := result["cursor"]) is None:
                return

    async def clear(
        self,
        pattern: str = "*",
        *,
        conditions: Mapping[str, Any] | None = None,
        max_entries: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete what matches, and fulfils `{"ttl_remaining": {"$lt": 60}}`; how many. A `dry_run` only counts."""
        count, cursor = 0, None
        while True:
            result = await self._namespace(
                "clear",
                pattern=pattern,
                conditions=or_unset(_plain(conditions)),
                max_entries=UNSET if max_entries is None else max_entries - count,
                dry_run=dry_run,
                cursor=or_unset(cursor),
            )
            count += int(result["matched" if dry_run else "removed"])
            cursor = result["cursor"]
            if cursor is None or (max_entries is not None and count >= max_entries):
                return count

    async def listen(self, listener: Callable[[CacheChanged], None]) -> None:
        """Be told, from when this returns, which keys change: in this namespace, and in others that are watched."""
        await self._caches.listen(self.namespace, listener)

    async def statistics(self, *, detailed: bool = False) -> dict[str, Any]:
        """How many keys, bytes and uses, and what this node has done with them in the last day."""
        return await self._namespace("statistics", include_detailed_breakdown=detailed)

    async def analytics(self) -> CacheStatistics:
        """Of this namespace on the node that the client is connected to, in the last hour."""
        reply = await self._caches.send(
            CacheAnalytics(u=self._caches.new_u(), namespace=self.namespace), CacheAnalytics
        )
        assert reply.statistics is not UNSET
        return reply.statistics

    async def backup(self, pattern: str = "*") -> AsyncIterator[bytes]:
        """Pages; each can be restored by itself."""
        cursor: Any = UNSET
        while True:
            result = await self._namespace("backup", pattern=pattern, limit=1_000, cursor=cursor, compression="gzip")
            if result["count"]:
                yield _bytes(result["data"])
            if (cursor := result["cursor"]) is None:
                return

    async def restore(self, page: bytes, *, merge: MergeStrategy = "skip") -> tuple[int, int]:
        """How many were restored, and how many skipped because something is there. `merge` may `replace` it, or keep
        the `newer`."""
        result = await self._namespace("restore", data=page, merge_strategy=merge)
        return int(result["restored"]), int(result["skipped"])

    async def _namespace(self, operation: Any, **fields: Any) -> dict[str, Any]:
        asked = NamespaceOperation(operation_type=operation, namespace=self.namespace, **fields)
        options = CacheOptions(timeout_ms=60_000)
        response = await self._caches.ask("namespace", namespace_operation=asked, options=options, timeout=60)
        result: dict[str, Any] = response.result
        return result


def or_unset(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value


def _plain(conditions: Mapping[str, Any] | None) -> dict[str, dict[str, Any]] | None:
    return None if conditions is None else {field: dict(each) for field, each in conditions.items()}


def _bytes(data: Any) -> bytes:
    """In JSON, bytes are base64."""
    return msgspec.convert(data, bytes) if isinstance(data, str) else bytes(data)

"""What concerns all keys of a namespace (R-C8): clear, list, count, back up, restore. Page by page, with cursors."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from msgspec import UNSET

from mpreg.cache.backup import Backup
from mpreg.cache.conditions import all_hold, check
from mpreg.cache.key import check_namespace, invalid, parse_key
from mpreg.cache.levels import Levels
from mpreg.cache.patterns import IdentifierPattern
from mpreg.cache.requests import within
from mpreg.cache.scanning import Page, Scanner, Seen
from mpreg.cache.settings import CacheSettings
from mpreg.wire.cache import NamespaceOperation, Status

_PATH: Final = "$.namespace_operation"
LIST_DEFAULT: Final = 100
LIST_MAX: Final = 10_000
SAMPLE_DEFAULT: Final = 100_000
_LARGEST: Final = 10


class Namespaces:
    def __init__(self, levels: Levels, scanner: Scanner, settings: CacheSettings) -> None:
        self._levels = levels
        self._scanner = scanner
        self._settings = settings
        self._backup = Backup(levels, settings)

    async def run(self, asked: NamespaceOperation, within_s: float) -> tuple[Status, dict[str, Any]]:
        namespace = check_namespace(asked.namespace, f"{_PATH}.namespace")
        text = "*" if asked.pattern is UNSET else asked.pattern
        pattern = IdentifierPattern.parse(namespace, text, f"{_PATH}.pattern")
        conditions = {} if asked.conditions is UNSET else asked.conditions
        check(conditions, f"{_PATH}.conditions")
        deadline = asyncio.get_running_loop().time() + within_s
        match asked.operation_type:
            case "clear":
                return "deleted", await self._clear(asked, pattern, deadline)
            case "statistics":
                return "hit", await self._statistics(asked, pattern, deadline)
            case "list_keys":
                return "hit", await self._list(asked, pattern, deadline)
            case "backup":
                limit = within(asked.limit, 1, LIST_MAX, 1_000, f"{_PATH}.limit")
                page = await self._page(pattern, asked, limit, deadline)
                data, count = await self._backup.dump(namespace, [s.key for s in page[0]], asked.compression)
                return "hit", {"data": data, "count": count, "cursor": page[1]}
            case "restore":
                if asked.data is UNSET:
                    raise invalid(f"{_PATH}.data", "is missing")
                return "stored", await self._backup.restore(namespace, asked.data, asked.merge_strategy, asked.dry_run)

    async def _page(
        self, pattern: IdentifierPattern, asked: NamespaceOperation, limit: int, deadline: float
    ) -> tuple[list[Seen], str | None]:
        """As many as asked, or more by what one step of SCAN brings at once; and where to go on."""
        conditions = {} if asked.conditions is UNSET else asked.conditions
        cursor = None if asked.cursor is UNSET else asked.cursor
        found: dict[bytes, Seen] = {}
        while True:
            page: Page = await self._scanner.page(pattern.glob, pattern.matches, cursor)
            cursor = page.cursor
            for seen in await self._scanner.look(page.keys):
                if all_hold(conditions, seen.fields()):
                    found[seen.key] = seen
            if cursor is None or len(found) >= limit or self._is_over(deadline):
                return list(found.values()), cursor

    async def _clear(self, asked: NamespaceOperation, pattern: IdentifierPattern, deadline: float) -> dict[str, Any]:
        """What is deleted is just what fulfilled the conditions: a value written meanwhile stays."""
        most = within(asked.max_entries, 1, 2**53, 2**53, f"{_PATH}.max_entries")
        conditions = {} if asked.conditions is UNSET else asked.conditions
        cursor = None if asked.cursor is UNSET else asked.cursor
        matched = removed = 0
        counted: set[bytes] = set()
        while True:
            page = await self._scanner.page(pattern.glob, pattern.matches, cursor)
            fits = [s for s in await self._scanner.look(page.keys) if all_hold(conditions, s.fields())]
            if asked.dry_run:
                # SCAN may name a key twice. What was counted is not remembered beyond what may be listed at once.
                fits = [s for s in fits if s.key not in counted]
                counted = (counted | {s.key for s in fits}) if len(counted) < self._settings.invalidated_max else set()
            chosen = fits[: most - matched]
            matched += len(chosen)
            if not asked.dry_run:
                guarded = [
                    self._levels.delete(s.key, guard="v", guarded=s.version)
                    if conditions
                    else self._levels.delete(s.key)
                    for s in chosen
                ]
                removed += sum(1 for done in await asyncio.gather(*guarded) if done is not None and done.changed)
            if matched >= most and len(chosen) < len(fits):
                return {"matched": matched, "removed": removed, "cursor": cursor}
            cursor = page.cursor
            if cursor is None or matched >= most or self._is_over(deadline):
                return {"matched": matched, "removed": removed, "cursor": cursor}

    async def _list(self, asked: NamespaceOperation, pattern: IdentifierPattern, deadline: float) -> dict[str, Any]:
        limit = within(asked.limit, 1, LIST_MAX, LIST_DEFAULT, f"{_PATH}.limit")
        if not 0 <= asked.offset <= 1_000_000:
            raise invalid(f"{_PATH}.offset", "0 … 1000000", limit=1_000_000)
        found, cursor = await self._page(pattern, asked, limit + asked.offset, deadline)
        keys = []
        for seen in found[asked.offset :]:
            key = parse_key(seen.key)
            keys.append(
                {
                    "namespace": key.namespace,
                    "identifier": key.identifier,
                    "version": key.version,
                    "kind": seen.kind,
                    "size_bytes": seen.size_bytes,
                    "ttl_remaining": seen.ttl_remaining,
                    "access_count": seen.access_count,
                    "age": seen.age,
                }
            )
        return {"keys": keys, "cursor": cursor}

    async def _statistics(
        self, asked: NamespaceOperation, pattern: IdentifierPattern, deadline: float
    ) -> dict[str, Any]:
        sample = within(asked.sample_size, 1, 10_000_000, SAMPLE_DEFAULT, f"{_PATH}.sample_size")
        sums = _Sums()
        cursor = None if asked.cursor is UNSET else asked.cursor
        while True:
            found, cursor = await self._page(
                pattern, msgspec.structs.replace(asked, cursor=cursor or UNSET), 1, deadline
            )
            sums.add(found)
            if cursor is None or sums.keys >= sample or self._is_over(deadline):
                break
        report = {"namespace": asked.namespace, "complete": cursor is None, "cursor": cursor, **sums.report()}
        if asked.include_detailed_breakdown:
            report["breakdown"] = sums.breakdown()
        return report

    @staticmethod
    def _is_over(deadline: float) -> bool:
        return asyncio.get_running_loop().time() >= deadline


class _Sums:
    def __init__(self) -> None:
        self.keys = self.bytes = self.uses = self.without_ttl = 0
        self.kinds: dict[str, int] = {}
        self.versions: dict[str, int] = {}
        self.largest: list[tuple[int, str]] = []

    def add(self, found: list[Seen]) -> None:
        for seen in found:
            key = parse_key(seen.key)
            self.keys += 1
            self.bytes += seen.size_bytes
            self.uses += seen.access_count or 0
            self.without_ttl += seen.ttl_remaining is None
            self.kinds[seen.kind] = self.kinds.get(seen.kind, 0) + 1
            if key.version in self.versions or len(self.versions) < 100:
                self.versions[key.version] = self.versions.get(key.version, 0) + 1
            self.largest.append((seen.size_bytes, key.identifier))
        self.largest = sorted(self.largest, reverse=True)[:_LARGEST]

    def report(self) -> dict[str, Any]:
        return {
            "keys": self.keys,
            "size_bytes": self.bytes,
            "access_count": self.uses,
            "without_ttl": self.without_ttl,
        }

    def breakdown(self) -> dict[str, Any]:
        return {
            "kinds": self.kinds,
            "versions": self.versions,
            "largest": [{"identifier": name, "size_bytes": size} for size, name in self.largest],
        }

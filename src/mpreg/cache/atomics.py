"""Exact operations on one value (R-C4): what a request says of them, and what came of it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from mpreg.cache.indexes import new_meta
from mpreg.cache.key import invalid
from mpreg.cache.map_paths import number_text
from mpreg.cache.requests import plain, same_value, ttl_ms, value_in, value_out
from mpreg.cache.settings import CacheSettings
from mpreg.cache.store_level import Changed, StoreLevel
from mpreg.errors import CacheError
from mpreg.wire.cache import AtomicOperation
from mpreg.wire.encoding import Encoding

_PATH: Final = "$.atomic_operation"
_NULL: Final = b"\xc0"
_RETRIES_MAX: Final = 100


class Outcome(msgspec.Struct, frozen=True):
    success: bool
    version: int
    old: bytes | None
    new: bytes | None
    extra: dict[str, Any] = {}

    @property
    def result(self) -> dict[str, Any]:
        """`new_value` is what is there now; null if nothing is."""
        return {
            "success": self.success,
            "old_value": None if self.old is None else value_out(self.old),
            "new_value": None if self.new is None else value_out(self.new),
            "version": self.version,
            **self.extra,
        }


class Atomics:
    def __init__(self, level: StoreLevel, settings: CacheSettings) -> None:
        self._level = level
        self._settings = settings

    async def run(self, key: bytes, asked: AtomicOperation, encoding: Encoding, tags: tuple[str, ...]) -> Outcome:
        """Raises what is wrong with the request, CACHE_WRONG_TYPE and others, having changed nothing."""
        ttl = ttl_ms(asked.ttl_seconds, self._settings, f"{_PATH}.ttl_seconds")
        meta = new_meta(tags, ())
        match asked.operation_type:
            case "extend_ttl":
                return await self._extend(key, asked, ttl)
            case "increment" | "decrement":
                by = 1 if asked.increment_by is UNSET else asked.increment_by
                text = number_text(by, f"{_PATH}.increment_by", negate=asked.operation_type == "decrement")
                initial = 0 if asked.initial_value is UNSET else asked.initial_value
                number_text(initial, f"{_PATH}.initial_value")
                start = msgspec.msgpack.encode(initial)
                changed = await self._level.increment(
                    key, text, start, create=asked.create_if_missing is not False, ttl_ms=ttl, meta=meta
                )
            case "append" | "prepend":
                changed = await self._level.append(
                    key,
                    value_in(asked.new_value, encoding, self._settings, f"{_PATH}.new_value"),
                    front=asked.operation_type == "prepend",
                    create=asked.create_if_missing is not False,
                    ttl_ms=ttl,
                    meta=meta,
                    bytes_max=self._settings.value_bytes_max,
                )
            case _:
                changed = await self._swap(key, asked, encoding, ttl, tags)
        return Outcome(changed.success, changed.version, changed.old, changed.new)

    async def _swap(
        self, key: bytes, asked: AtomicOperation, encoding: Encoding, ttl: int, tags: tuple[str, ...]
    ) -> Changed:
        new = value_in(asked.new_value, encoding, self._settings, f"{_PATH}.new_value")
        only_absent = asked.conditions.if_not_exists
        if only_absent and asked.operation_type == "compare_and_swap":
            raise invalid(f"{_PATH}.conditions.if_not_exists", "compare_and_swap compares; test_and_set can do this")
        if only_absent:
            if asked.expected_value is not UNSET and plain(asked.expected_value, encoding, _PATH) is not None:
                raise invalid(f"{_PATH}.expected_value", "if_not_exists expects nothing to be there")
            return await self._level.swap(key, None, new, ttl_ms=ttl, meta=new_meta(tags, ()))
        if asked.expected_value is UNSET:
            raise invalid(f"{_PATH}.expected_value", "is missing")
        wanted = expected = value_in(asked.expected_value, encoding, self._settings, f"{_PATH}.expected_value")
        absent = asked.create_if_missing is True and expected == _NULL
        for _ in range(_RETRIES_MAX):
            changed = await self._level.swap(
                key, expected, new, absent_matches=absent, ttl_ms=ttl, meta=new_meta(tags, ())
            )
            if changed.success or changed.old is None or not same_value(changed.old, wanted):
                return changed
            expected = changed.old  # the same value in other bytes: a map in another order
        raise CacheError("CACHE_TIMEOUT", f"others changed the value {_RETRIES_MAX} times meanwhile")

    async def _extend(self, key: bytes, asked: AtomicOperation, ttl: int) -> Outcome:
        if not ttl:
            raise invalid(f"{_PATH}.ttl_seconds", "is missing")
        there, version, ends_ms = await self._level.extend(key, ttl)
        left = max(0.0, (ends_ms - self._level.clock.now_ms()) / 1000) if ends_ms else None
        return Outcome(there, version, None, None, {"ttl_remaining": left} if there else {})

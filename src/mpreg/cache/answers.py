"""One request and how it is answered: values in the encoding that it came in."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from mpreg.cache.entry import Entry
from mpreg.cache.key import invalid, parse_key, store_key
from mpreg.deadlines import Deadline
from mpreg.errors import CacheError, MpregError
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.cache import (
    CacheEntry,
    CacheLevel,
    CachePerformance,
    CacheRequest,
    CacheRequestKey,
    CacheResponse,
)
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import error_body

if TYPE_CHECKING:
    from mpreg.cache.cache import Cache


class Asked:
    deadline: Deadline
    """By when it is answered; set once it has to wait."""

    def __init__(self, session: Session, message: CacheRequest, encoding: Encoding) -> None:
        self.session = session
        self.message = message
        self.encoding = encoding

    @cached_property
    def key(self) -> bytes:
        key = self.message.key
        if key is UNSET:
            raise invalid("$.key", "is missing")
        return store_key(key.namespace, key.identifier, key.version)

    def value_out(self, value: bytes) -> Raw:
        return codec.transcode(Raw(value), Encoding.MSGPACK, self.encoding)

    def send(self, response: CacheResponse) -> None:
        if self.session.closed:
            return
        try:
            self.session.send(response, self.encoding)
        except MpregError as too_large:
            self.session.send(error_response_of(response.u, too_large), self.encoding)
        except (TypeError, ValueError, OverflowError) as problem:
            error = CacheError("CACHE_UNENCODABLE", f"the value has no encoding in {self.encoding.value}: {problem}")
            self.session.send(error_response_of(response.u, error), self.encoding)

    def send_found(
        self, cache: Cache, entry: Entry, level: CacheLevel, uses: int, now_ms: int, before: float, **fields: Any
    ) -> None:
        self.send(self.found(cache, entry, level, uses, now_ms, before, **fields))

    def found(
        self, cache: Cache, entry: Entry, level: CacheLevel, uses: int, now_ms: int, before: float, **fields: Any
    ) -> CacheResponse:
        """A hit, with all that is known of the entry if that was asked for."""
        value = self.value_out(entry.value)
        if not self.message.options.include_metadata:
            return CacheResponse(u=self.message.u, status="hit", cache_level=level, entry=entry_of(value), **fields)
        return CacheResponse(
            u=self.message.u,
            status="hit",
            cache_level=level,
            entry=described(self.key, entry, value, uses, now_ms),
            performance=performance(cache, self.key, level, before),
            **fields,
        )


def entry_of(value: Raw) -> CacheEntry:
    return CacheEntry(value=value)


def described(key: bytes, entry: Entry, value: Raw, uses: int, now_ms: int) -> CacheEntry:
    name = parse_key(key)
    ends_ms = entry.fresh_until_ms or entry.expires_ms
    return CacheEntry(
        value=value,
        key=CacheRequestKey(
            namespace=name.namespace, identifier=name.identifier, version=name.version, tags=entry.tags
        ),
        version=entry.version,
        creation_time=entry.created_ms / 1000,
        access_count=uses,
        last_access_time=now_ms / 1000,
        computation_cost_ms=entry.cost_ms,
        size_bytes=entry.size_bytes,
        dependencies=entry.dependencies,
        ttl_seconds=round((ends_ms - entry.created_ms) / 1000, 3) if ends_ms else None,
        ttl_remaining=max(0.0, (ends_ms - now_ms) / 1000) if ends_ms else None,
    )


def performance(cache: Cache, key: bytes, level: str | None, before: float) -> CachePerformance:
    return CachePerformance(
        lookup_time_ms=(time.perf_counter() - before) * 1000,
        network_hops=1 if level in (None, "L3", "L4") else 0,
        cache_efficiency=round(cache.analytics.efficiency(parse_key(key).namespace), 4),
    )


def error_response_of(u: str, error: MpregError) -> CacheResponse:
    """R-C10."""
    return CacheResponse(u=u, status="error", error=error_body(error))

"""The cache of the cluster as a program uses it: one handle a namespace.

results = client.cache("compute.results")
await results.put("abc", value, ttl=3600, tags=["ml"], depends_on=["input:abc"])
value = await results.get("abc")

@results.memoize(ttl=60)
async def slow(x: int) -> int: ...
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, ParamSpec, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from mpreg.client.cache_computing import Computing
from mpreg.client.cache_namespace import CacheNamespace, or_unset
from mpreg.client.cache_structures import CachedList, CachedMap, CachedSet, CachedSortedSet, raw_value
from mpreg.client.caches import Caches
from mpreg.client.results import decode_result
from mpreg.wire.cache import (
    AtomicConditions,
    AtomicOperation,
    CacheMetadata,
    CacheOptions,
    CacheRequestKey,
    CacheResponse,
    NotificationCondition,
    StructureOperation,
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")

LEASE_MS: Final = 5_000.0
"""While a value is computed here, nobody else is told to; renewed at a third of it."""

Consistency = Literal["eventual", "strong"]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A value and what is known of it. `unverified`: the store is gone, this is what the node still holds."""

    value: Any
    version: int
    level: str
    created: float
    access_count: int
    cost_ms: float
    size_bytes: int
    tags: tuple[str, ...]
    dependencies: tuple[str, ...]
    ttl: float | None
    ttl_remaining: float | None
    stale: bool = False
    unverified: bool = False


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """Publish when this write changes the value: on `topic`, if what is at `field` compares with `threshold`."""

    topic: str | None = None
    payload: Mapping[str, Any] = {}
    field: str | None = None
    threshold: Mapping[str, Any] = {}


class Cache:
    """Made by `client.cache(namespace)`. `near` values are held in this process, too, as long as the node tells when
    they change; then a `get` of one takes no round trip."""

    def __init__(self, caches: Caches, namespace: str, *, near: int = 0, version: str = "v1") -> None:
        self.namespace = namespace
        self.version = version
        self._caches = caches
        self._near = near
        self._encoding = caches.encoding
        whole, computing = CacheNamespace(caches, namespace), Computing(self, caches)
        self.keys = whole.keys
        self.clear = whole.clear
        self.statistics = whole.statistics
        self.analytics = whole.analytics
        self.backup = whole.backup
        self.restore = whole.restore
        self.listen = whole.listen
        self.get_or_compute = computing.get_or_compute
        self.memoize = computing.memoize

    def __repr__(self) -> str:
        return f"<Cache {self.namespace}>"

    @property
    def is_near(self) -> bool:
        return self._near > 0

    # --- values --------------------------------------------------------------------------------------------------

    async def get(
        self,
        identifier: str,
        default: Any = None,
        *,
        consistency: Consistency = "eventual",
        value_type: Any = Any,
        timeout: float | None = None,
    ) -> Any:
        """The value, or `default`. `strong` is what the store says now; `eventual` may be what the node holds, which is
        told of changes within a message, and serves on when the store is gone."""
        if self._near and consistency == "eventual":
            return await self.get_near(identifier, default, value_type, timeout)
        response = await self.ask_get(identifier, CacheOptions(consistency_level=consistency), timeout)
        return default if response.entry is UNSET else self.value(response.entry.value, value_type)

    async def get_near(self, identifier: str, default: Any, value_type: Any, timeout: float | None) -> Any:
        key = (self.namespace, identifier, self.version)
        near = self._caches.is_near(self.namespace) or await self._caches.near(self.namespace, self._near)
        held = near.get(key)
        if held is not None:
            return self.value(held.value, value_type)
        near.asking(key)
        asked, response = time.monotonic(), None
        try:
            response = await self.ask_get(identifier, CacheOptions(include_metadata=True), timeout)
        finally:
            found = None if response is None or response.entry is UNSET else response.entry
            doubtful = response is not None and (response.stale is True or response.unverified is True)
            self._caches.take(near, key, found, asked, doubtful)
        return default if found is None else self.value(found.value, value_type)

    async def get_entry(
        self, identifier: str, *, consistency: Consistency = "eventual", value_type: Any = Any
    ) -> Found | None:
        """The value with what is known of it; None if there is none (a value may be None itself)."""
        response = await self.ask_get(
            identifier, CacheOptions(include_metadata=True, consistency_level=consistency), None
        )
        entry = response.entry
        if entry is UNSET:
            return None
        assert entry.key is not UNSET
        return Found(
            value=self.value(entry.value, value_type),
            version=_known(entry.version),
            level=_known(response.cache_level),
            created=_known(entry.creation_time),
            access_count=_known(entry.access_count),
            cost_ms=_known(entry.computation_cost_ms),
            size_bytes=_known(entry.size_bytes),
            tags=entry.key.tags,
            dependencies=_known(entry.dependencies),
            ttl=_known(entry.ttl_seconds),
            ttl_remaining=_known(entry.ttl_remaining),
            stale=response.stale is True,
            unverified=response.unverified is True,
        )

    async def get_many(
        self, identifiers: Iterable[str], *, consistency: Consistency = "eventual", value_type: Any = Any
    ) -> dict[str, Any]:
        """Those that are there, in one round trip for a thousand."""
        wanted, found = list(dict.fromkeys(identifiers)), dict[str, Any]()
        for first in range(0, len(wanted), 1_000):
            part = wanted[first : first + 1_000]
            response = await self._caches.ask(
                "get_many", keys=tuple(map(self.key, part)), options=CacheOptions(consistency_level=consistency)
            )
            assert response.entries is not UNSET
            for identifier, entry in zip(part, response.entries, strict=True):
                if entry is not None:
                    found[identifier] = self.value(entry.value, value_type)
        return found

    async def put(
        self,
        identifier: str,
        value: Any,
        *,
        ttl: float | None = None,
        stale: float | None = None,
        tags: Iterable[str] = (),
        depends_on: Iterable[str] = (),
        cost_ms: float = 0.0,
        notify: Notify | None = None,
        replicas: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Store it, whatever was there; the version that it got. `stale` seconds after its TTL it may still be served,
        while someone computes it anew. `replicas`: wait for so many copies within the store, up to a second."""
        response = await self.put_with(
            identifier, value, ttl, stale, tags, depends_on, cost_ms, _options(notify, replicas=replicas), timeout
        )
        return int(response.result["version"])

    async def put_with(
        self,
        identifier: str,
        value: Any,
        ttl: float | None,
        stale: float | None,
        tags: Iterable[str],
        depends_on: Iterable[str],
        cost_ms: float,
        options: CacheOptions,
        timeout: float | None,
    ) -> CacheResponse:
        metadata = CacheMetadata(
            computation_cost_ms=cost_ms,
            dependencies=tuple(depends_on),
            ttl_seconds=or_unset(ttl),
            stale_seconds=or_unset(stale),
        )
        response = await self._caches.ask(
            "put",
            key=self.key(identifier, tuple(tags)),
            value=raw_value(value, self._encoding),
            metadata=metadata,
            options=options,
            timeout=timeout,
        )
        self._own_change(identifier, response.result["version"])
        return response

    async def delete(self, identifier: str, *, cascade: bool = False, notify: Notify | None = None) -> int:
        """How many went: this one, and with `cascade` all that depends on it."""
        options = msgspec.structs.replace(_options(notify), cascade_dependencies=cascade)
        response = await self._caches.ask("delete", key=self.key(identifier), options=options)
        self._own_change(identifier, response.result["version"])
        return int(response.result["count"])

    async def invalidate(
        self,
        pattern: str | None = None,
        *,
        tag: str | None = None,
        depends_on: str | None = None,
        cascade: bool = True,
        reason: str | None = None,
        timeout: float = 60.0,
    ) -> int:
        """Remove what matches `pattern` within this namespace, carries `tag`, or depends on something; and, unless told
        not to, what depends on that. How many went. Tags and dependencies are of all namespaces."""
        if sum(each is not None for each in (pattern, tag, depends_on)) != 1:
            raise ValueError("one of pattern, tag and depends_on")
        options = CacheOptions(cascade_dependencies=cascade, reason=or_unset(reason), timeout_ms=timeout * 1000)
        fields: dict[str, Any] = {}
        if pattern is not None:
            fields["pattern"] = f"{self.namespace}.{pattern}"
        elif tag is not None:
            fields["tag"] = tag
        else:
            fields["dependency"] = depends_on
        count = 0
        while True:
            response = await self._caches.ask("invalidate", options=options, timeout=timeout, **fields)
            count += int(response.result["count"])
            cursor = response.result["cursor"]
            if cursor is None:
                return count
            if pattern is not None:
                fields["cursor"] = cursor

    # --- exact operations ----------------------------------------------------------------------------------------

    async def incr(self, identifier: str, by: float = 1, *, initial: float = 0, ttl: float | None = None) -> Any:
        """The new value. Exact, whoever else counts; what is not there counts as `initial`."""
        result = await self._atomic(
            identifier, operation_type="increment", increment_by=by, initial_value=initial, ttl_seconds=or_unset(ttl)
        )
        return result["new_value"]

    async def compare_and_swap(
        self, identifier: str, expected: Any, new: Any, *, create: bool = False, ttl: float | None = None
    ) -> bool:
        """Whether the value was `expected`, and is `new` now. With `create` nothing counts as None."""
        result = await self._atomic(
            identifier,
            operation_type="compare_and_swap",
            expected_value=raw_value(expected, self._encoding),
            new_value=raw_value(new, self._encoding),
            create_if_missing=create,
            ttl_seconds=or_unset(ttl),
        )
        return bool(result["success"])

    async def add(self, identifier: str, value: Any, *, ttl: float | None = None) -> bool:
        """Store it if nothing is there; whether that was so."""
        result = await self._atomic(
            identifier,
            operation_type="test_and_set",
            new_value=raw_value(value, self._encoding),
            conditions=AtomicConditions(if_not_exists=True),
            ttl_seconds=or_unset(ttl),
        )
        return bool(result["success"])

    async def append(self, identifier: str, value: Any, *, front: bool = False) -> Any:
        """Add to a text, or one element to a list; the new value."""
        operation: Any = "prepend" if front else "append"
        result = await self._atomic(identifier, operation_type=operation, new_value=raw_value(value, self._encoding))
        return result["new_value"]

    async def extend_ttl(self, identifier: str, ttl: float) -> bool:
        """It lives at least so long from now, never shorter than before; False if nothing is there."""
        result = await self._atomic(identifier, operation_type="extend_ttl", ttl_seconds=ttl)
        return bool(result["success"])

    async def _atomic(self, identifier: str, **fields: Any) -> dict[str, Any]:
        response = await self._caches.ask(
            "atomic", key=self.key(identifier), atomic_operation=AtomicOperation(**fields)
        )
        result: dict[str, Any] = response.result
        if result["success"] and fields["operation_type"] != "extend_ttl":
            self._own_change(identifier, result["version"])
        return result

    # --- structures ----------------------------------------------------------------------------------------------

    def set(self, identifier: str, *, ttl: float | None = None) -> CachedSet:
        """`ttl` is set anew with each write."""
        return CachedSet(identifier, self._structure, self._encoding, ttl)

    def list(self, identifier: str, *, ttl: float | None = None) -> CachedList:
        return CachedList(identifier, self._structure, self._encoding, ttl)

    def map(self, identifier: str, *, ttl: float | None = None) -> CachedMap:
        return CachedMap(identifier, self._structure, self._encoding, ttl)

    def sorted_set(self, identifier: str, *, ttl: float | None = None) -> CachedSortedSet:
        return CachedSortedSet(identifier, self._structure, self._encoding, ttl)

    async def _structure(self, identifier: str, operation: StructureOperation) -> Any:
        response = await self._caches.ask("structure", key=self.key(identifier), structure_operation=operation)
        return response.result

    # --- for its parts ------------------------------------------------------------------------------------------------

    def key(self, identifier: str, tags: tuple[str, ...] = ()) -> CacheRequestKey:
        return CacheRequestKey(namespace=self.namespace, identifier=identifier, version=self.version, tags=tags)

    async def ask_get(self, identifier: str, options: CacheOptions, timeout: float | None) -> CacheResponse:
        return await self._caches.ask("get", key=self.key(identifier), options=options, timeout=timeout)

    def value(self, raw: Any, value_type: Any) -> Any:
        return decode_result(raw, self._encoding, value_type)

    def _own_change(self, identifier: str, version: int) -> None:
        """What this program has written itself it must not read back older."""
        near = self._caches.is_near(self.namespace)
        if near is not None:
            near.outdated((self.namespace, identifier, self.version), version)


def _known(value: T | UnsetType) -> T:
    assert value is not UNSET, "the node was asked for it"
    return value


def _options(notify: Notify | None, *, replicas: int | None = None) -> CacheOptions:
    condition: Any = UNSET
    if notify is not None and notify.field is not None:
        condition = NotificationCondition(field_path=notify.field, threshold=dict(notify.threshold))
    return CacheOptions(
        notify_on_change=notify is not None,
        notification_topic=UNSET if notify is None else or_unset(notify.topic),
        notification_payload=UNSET if notify is None or not notify.payload else dict(notify.payload),
        notification_condition=condition,
        replication_factor=or_unset(replicas),
    )

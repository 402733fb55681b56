"""The cache of the cluster as a program uses it: one handle a namespace.

results = client.cache("compute.results")
await results.put("abc", value, ttl=3600, tags=["ml"], depends_on=["input:abc"])
value = await results.get("abc")

@results.memoize(ttl=60)
async def slow(x: int) -> int: ...
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal, ParamSpec, TypeVar, overload

import msgspec
from msgspec import UNSET, UnsetType

from mpreg.client.cache_arguments import identifier_of
from mpreg.client.cache_structures import CachedList, CachedMap, CachedSet, CachedSortedSet, raw_value
from mpreg.client.caches import Caches
from mpreg.client.results import decode_result
from mpreg.errors import CacheError
from mpreg.wire.cache import (
    AtomicConditions,
    AtomicOperation,
    CacheAnalytics,
    CacheChanged,
    CacheMetadata,
    CacheOptions,
    CacheRequestKey,
    CacheResponse,
    CacheStatistics,
    MergeStrategy,
    NamespaceOperation,
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

    def __repr__(self) -> str:
        return f"<Cache {self.namespace}>"

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
            return await self._get_near(identifier, default, value_type, timeout)
        response = await self._ask_get(identifier, CacheOptions(consistency_level=consistency), timeout)
        return default if response.entry is UNSET else self._value(response.entry.value, value_type)

    async def _get_near(self, identifier: str, default: Any, value_type: Any, timeout: float | None) -> Any:
        key = (self.namespace, identifier, self.version)
        near = self._caches.is_near(self.namespace) or await self._caches.near(self.namespace, self._near)
        held = near.get(key)
        if held is not None:
            return self._value(held.value, value_type)
        near.asking(key)
        asked, response = time.monotonic(), None
        try:
            response = await self._ask_get(identifier, CacheOptions(include_metadata=True), timeout)
        finally:
            found = None if response is None or response.entry is UNSET else response.entry
            doubtful = response is not None and (response.stale is True or response.unverified is True)
            self._caches.take(near, key, found, asked, doubtful)
        return default if found is None else self._value(found.value, value_type)

    async def get_entry(
        self, identifier: str, *, consistency: Consistency = "eventual", value_type: Any = Any
    ) -> Found | None:
        """The value with what is known of it; None if there is none (a value may be None itself)."""
        response = await self._ask_get(
            identifier, CacheOptions(include_metadata=True, consistency_level=consistency), None
        )
        entry = response.entry
        if entry is UNSET:
            return None
        assert entry.key is not UNSET
        return Found(
            value=self._value(entry.value, value_type),
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
                "get_many", keys=tuple(map(self._key, part)), options=CacheOptions(consistency_level=consistency)
            )
            assert response.entries is not UNSET
            for identifier, entry in zip(part, response.entries, strict=True):
                if entry is not None:
                    found[identifier] = self._value(entry.value, value_type)
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
        response = await self._put(
            identifier, value, ttl, stale, tags, depends_on, cost_ms, _options(notify, replicas=replicas), timeout
        )
        return int(response.result["version"])

    async def _put(
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
            ttl_seconds=_or_unset(ttl),
            stale_seconds=_or_unset(stale),
        )
        response = await self._caches.ask(
            "put",
            key=self._key(identifier, tuple(tags)),
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
        response = await self._caches.ask("delete", key=self._key(identifier), options=options)
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
        options = CacheOptions(cascade_dependencies=cascade, reason=_or_unset(reason), timeout_ms=timeout * 1000)
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
            identifier, operation_type="increment", increment_by=by, initial_value=initial, ttl_seconds=_or_unset(ttl)
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
            ttl_seconds=_or_unset(ttl),
        )
        return bool(result["success"])

    async def add(self, identifier: str, value: Any, *, ttl: float | None = None) -> bool:
        """Store it if nothing is there; whether that was so."""
        result = await self._atomic(
            identifier,
            operation_type="test_and_set",
            new_value=raw_value(value, self._encoding),
            conditions=AtomicConditions(if_not_exists=True),
            ttl_seconds=_or_unset(ttl),
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
            "atomic", key=self._key(identifier), atomic_operation=AtomicOperation(**fields)
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
        response = await self._caches.ask("structure", key=self._key(identifier), structure_operation=operation)
        return response.result

    # --- computed values -----------------------------------------------------------------------------------------

    async def get_or_compute(
        self,
        identifier: str,
        compute: Callable[[], Awaitable[T]],
        *,
        ttl: float | None = None,
        stale: float | None = None,
        negative_ttl: float | None = None,
        tags: Iterable[str] = (),
        depends_on: Iterable[str] = (),
        value_type: Any = Any,
        timeout: float = 60.0,
    ) -> T:
        """The value; if it is not there, `compute()` of exactly one caller in the cluster. The others wait for it, up
        to `timeout`. If that caller dies, one of them takes over. A result of None is not kept, unless `negative_ttl`
        says how long. When the store is gone the value is computed, and not kept."""
        if self._near:
            held: Any = await self._get_near(identifier, _NOTHING, value_type, None)
            if held is not _NOTHING:
                near: T = held
                return near
        key = (self.namespace, identifier, self.version)
        task = self._caches.computing.get(key)
        if task is None:
            work = self._compute(
                identifier, compute, ttl, stale, negative_ttl, tuple(tags), tuple(depends_on), value_type, timeout
            )
            task = self._caches.computing[key] = self._caches.spawn(work)
            task.add_done_callback(lambda done: self._caches.computing.pop(key, None))
        value: T = await asyncio.shield(task)
        return value

    async def _compute(
        self,
        identifier: str,
        compute: Callable[[], Awaitable[T]],
        ttl: float | None,
        stale: float | None,
        negative_ttl: float | None,
        tags: tuple[str, ...],
        depends_on: tuple[str, ...],
        value_type: Any,
        timeout: float,
    ) -> Any:
        try:
            response = await self._ask_get(
                identifier, CacheOptions(lease_ms=LEASE_MS, timeout_ms=timeout * 1000), timeout
            )
        except CacheError as error:
            if error.code != "CACHE_STORE_UNAVAILABLE":
                raise
            return await compute()
        found = None if response.entry is UNSET else response.entry
        if response.lease is not UNSET:
            lease = response.lease

            async def refresh() -> Any:
                begun = time.monotonic()
                try:
                    value = await self._while_renewed(identifier, lease, compute)
                except BaseException:
                    self._give_back(identifier, lease)
                    raise
                kept_s = negative_ttl if value is None and negative_ttl is not None else ttl
                if value is None and negative_ttl is None:
                    self._give_back(identifier, lease)
                    return value
                took_ms = (time.monotonic() - begun) * 1000
                options = CacheOptions(lease=lease)
                try:
                    await self._put(
                        identifier, value, kept_s, stale if value is not None else None, tags, depends_on, took_ms,
                        options, None,
                    )  # fmt: skip
                except CacheError as error:  # deleted meanwhile, or the store is gone: the caller has it all the same
                    if error.code not in ("CACHE_LEASE_LOST", "CACHE_STORE_UNAVAILABLE"):
                        raise
                return value

            if found is None:
                return await refresh()
            self._caches.spawn(refresh())
        assert found is not None
        return self._value(found.value, value_type)

    async def _while_renewed(self, identifier: str, lease: str, compute: Callable[[], Awaitable[T]]) -> T:
        async def keep() -> None:
            options = CacheOptions(lease=lease, lease_ms=LEASE_MS)
            while True:
                await asyncio.sleep(LEASE_MS / 3000)
                await self._caches.ask("renew_lease", key=self._key(identifier), options=options)

        keeping = self._caches.spawn(keep())
        try:
            return await compute()
        finally:
            keeping.cancel()

    def _give_back(self, identifier: str, lease: str) -> None:
        self._caches.spawn(
            self._caches.ask("release_lease", key=self._key(identifier), options=CacheOptions(lease=lease))
        )

    @overload
    def memoize(self, call: Callable[P, Awaitable[R]], /) -> Callable[P, Awaitable[R]]: ...

    @overload
    def memoize(
        self,
        /,
        *,
        ttl: float | None = ...,
        stale: float | None = ...,
        negative_ttl: float | None = ...,
        tags: Iterable[str] = ...,
        name: str | None = ...,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]: ...

    def memoize(
        self,
        call: Callable[..., Awaitable[Any]] | None = None,
        /,
        *,
        ttl: float | None = None,
        stale: float | None = None,
        negative_ttl: float | None = None,
        tags: Iterable[str] = (),
        name: str | None = None,
    ) -> Any:
        """Keep the results of an async function, by its arguments: once computed, known to every process that has a
        function of this name. `f.identifier(…)` is the key of a call, `await f.forget(…)` removes its result. For
        functions that are not async, use `mpreg.sync`."""

        def decorate(call: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
            if not inspect.iscoroutinefunction(call):
                raise TypeError(f"{call!r} is not async; memoize it with mpreg.sync")
            identifier = identifier_of(call, name)
            result_type = inspect.get_annotations(call, eval_str=True).get("return", Any)

            @functools.wraps(call)
            async def memoized(*args: P.args, **kwargs: P.kwargs) -> R:
                return await self.get_or_compute(
                    identifier(*args, **kwargs),
                    lambda: call(*args, **kwargs),
                    ttl=ttl,
                    stale=stale,
                    negative_ttl=negative_ttl,
                    tags=tags,
                    value_type=result_type,
                )

            async def forget(*args: P.args, **kwargs: P.kwargs) -> bool:
                return bool(await self.delete(identifier(*args, **kwargs)))

            memoized.identifier = identifier  # type: ignore[attr-defined]
            memoized.forget = forget  # type: ignore[attr-defined]
            return memoized

        return decorate if call is None else decorate(call)

    # --- the namespace -------------------------------------------------------------------------------------------

    async def keys(
        self, pattern: str = "*", *, conditions: Mapping[str, Any] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """What there is, with kind, size, TTL and uses; page by page. A key may come twice."""
        cursor: Any = UNSET
        while True:
            result = await self._namespace(
                "list_keys", pattern=pattern, limit=1_000, cursor=cursor, conditions=_or_unset(_plain(conditions))
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
                conditions=_or_unset(_plain(conditions)),
                max_entries=UNSET if max_entries is None else max_entries - count,
                dry_run=dry_run,
                cursor=_or_unset(cursor),
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

    # --- parts ---------------------------------------------------------------------------------------------------

    def _key(self, identifier: str, tags: tuple[str, ...] = ()) -> CacheRequestKey:
        return CacheRequestKey(namespace=self.namespace, identifier=identifier, version=self.version, tags=tags)

    async def _ask_get(self, identifier: str, options: CacheOptions, timeout: float | None) -> CacheResponse:
        return await self._caches.ask("get", key=self._key(identifier), options=options, timeout=timeout)

    def _value(self, raw: Any, value_type: Any) -> Any:
        return decode_result(raw, self._encoding, value_type)

    def _own_change(self, identifier: str, version: int) -> None:
        """What this program has written itself it must not read back older."""
        near = self._caches.is_near(self.namespace)
        if near is not None:
            near.outdated((self.namespace, identifier, self.version), version)


_NOTHING: Final = object()


def _known(value: T | UnsetType) -> T:
    assert value is not UNSET, "the node was asked for it"
    return value


def _or_unset(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value


def _plain(conditions: Mapping[str, Any] | None) -> dict[str, dict[str, Any]] | None:
    return None if conditions is None else {field: dict(each) for field, each in conditions.items()}


def _bytes(data: Any) -> bytes:
    """In JSON, bytes are base64."""
    return msgspec.convert(data, bytes) if isinstance(data, str) else bytes(data)


def _options(notify: Notify | None, *, replicas: int | None = None) -> CacheOptions:
    condition: Any = UNSET
    if notify is not None and notify.field is not None:
        condition = NotificationCondition(field_path=notify.field, threshold=dict(notify.threshold))
    return CacheOptions(
        notify_on_change=notify is not None,
        notification_topic=UNSET if notify is None else _or_unset(notify.topic),
        notification_payload=UNSET if notify is None or not notify.payload else dict(notify.payload),
        notification_condition=condition,
        replication_factor=_or_unset(replicas),
    )

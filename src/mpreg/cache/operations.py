"""What each operation of a `cache-request` does, and its answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec import UNSET

from mpreg.cache.answers import Asked, described, entry_of, performance
from mpreg.cache.cache import Cache
from mpreg.cache.coherence import Update
from mpreg.cache.entry import Entry
from mpreg.cache.indexes import STRUCTURE
from mpreg.cache.invalidation import Removed
from mpreg.cache.key import check_labels, invalid, parse_key, store_key
from mpreg.cache.levels import Found
from mpreg.cache.notices import check_notice, notice, topic_of
from mpreg.cache.patterns import KeyPattern
from mpreg.cache.record import Meta, Record
from mpreg.cache.replication import Replication
from mpreg.cache.requests import lease_ms, levels_of, not_negative, tags_of, ttl_ms, value_in, value_out, within
from mpreg.cache.store_level import Leased
from mpreg.cache.structures import WRITES
from mpreg.errors import CacheError, MpregError, ResourceError
from mpreg.transport.session import Session
from mpreg.wire.cache import GET_MANY_MAX, CacheEntry, CacheMetadata, CacheRequest, CacheResponse

log = logging.getLogger(__name__)

_NO_METADATA: Final = CacheMetadata()
LEASES_MAX: Final = 10_000
"""Of one connection."""
_MOST: Final = 2**53


class Operations:
    def __init__(self, cache: Cache, publish: Callable[[str, Any], None]) -> None:
        self._cache = cache
        self._publish = publish
        self._replication = Replication(cache.level)
        self._leases: dict[Session, dict[str, bytes]] = {}
        self._run: Final[dict[str, Callable[[Asked, float], Coroutine[Any, Any, CacheResponse]]]] = {
            "get": self._get,
            "put": self._put,
            "delete": self._delete,
            "invalidate": self._invalidate,
            "atomic": self._atomic,
            "structure": self._structure,
            "namespace": self._namespace,
            "get_many": self._get_many,
            "renew_lease": self._renew,
            "release_lease": self._release,
        }

    async def run(self, asked: Asked, within_s: float) -> CacheResponse:
        """Raises what the request is answered with instead."""
        check_notice(asked.message.options)
        return await self._run[asked.message.operation](asked, within_s)

    def abandoned(self, session: Session) -> list[Coroutine[Any, Any, None]]:
        """What has to be done for the leases of a connection that is gone."""
        return [self._give_back(key, lease) for lease, key in self._leases.pop(session, {}).items()]

    async def _give_back(self, key: bytes, lease: str) -> None:
        try:
            await self._cache.level.release(key, lease)
        except CacheError as error:
            log.debug("A lease could not be given back, it will run out: %s", error)

    # --- values -----------------------------------------------------------------------------------------------------

    async def _get(self, asked: Asked, within_s: float) -> CacheResponse:
        cache, message, before = self._cache, asked.message, time.perf_counter()
        options, key = message.options, asked.key
        levels = levels_of(options)
        if options.lease_ms is not UNSET:
            return await self._get_or_lease(asked, lease_ms(options), before)
        found = await cache.levels.get(key, levels, strong=options.consistency_level == "strong")
        return self._found(asked, found, before)

    def _found(self, asked: Asked, found: Found, before: float, **fields: Any) -> CacheResponse:
        cache, entry = self._cache, found.entry
        namespace = parse_key(asked.key).namespace
        took = time.perf_counter() - before
        cache.analytics.looked_up(namespace, found.level, took, 0.0 if entry is None else entry.cost_ms)
        now = cache.clock.now_ms()
        if entry is None:
            wanted = asked.message.options.include_metadata
            figures = performance(cache, asked.key, None, before) if wanted else UNSET
            return CacheResponse(u=asked.message.u, status="miss", performance=figures, **fields)
        uses = self._used(asked.key, entry, now, found.record)
        assert found.level is not None
        if found.unverified:
            fields["unverified"] = True
        if not entry.is_fresh(now):
            fields["stale"] = True
        return asked.found(cache, entry, found.level, uses, now, before, **fields)

    def _used(self, key: bytes, entry: Entry, now_ms: int, record: Record | None) -> int:
        uses = self._cache.uses
        if uses.is_full:
            self._cache.levels.spawn(self._cache.flush_uses())
        return uses.used(key, entry.version, now_ms, None if record is None else record.uses)

    async def _get_or_lease(self, asked: Asked, lasts_ms: int, before: float) -> CacheResponse:
        """A value that is fresh; or one that is not, which someone computes anew; or a lease to compute it."""
        cache, key = self._cache, asked.key
        options = asked.message.options
        found = await cache.levels.get(key, levels_of(options), strong=options.consistency_level == "strong")
        if found.unverified or (found.entry is not None and found.entry.is_fresh(cache.clock.now_ms())):
            return self._found(asked, found, before)
        leased: Leased = await cache.leases.acquire(key, lasts_ms)
        fields: dict[str, Any] = {}
        if leased.lease:
            held = self._leases.setdefault(asked.session, {})
            held[leased.lease] = key
            if asked.session.closed or len(held) > LEASES_MAX:
                del held[leased.lease]
                if asked.session.closed:
                    self._leases.pop(asked.session, None)
                await cache.level.release(key, leased.lease)
                limit = f"{LEASES_MAX} values are being computed by this connection, which is the limit"
                raise ResourceError("RESOURCE_EXHAUSTED", limit, limit=LEASES_MAX)
            fields["lease"] = leased.lease
        entry = None if leased.record is None else leased.record.entry
        there = Found(entry, None if entry is None else "L3", record=leased.record)
        return self._found(asked, there, before, **fields)

    async def _get_many(self, asked: Asked, within_s: float) -> CacheResponse:
        cache, message, before = self._cache, asked.message, time.perf_counter()
        if message.keys is UNSET or not message.keys:
            raise invalid("$.keys", "is missing")
        if len(message.keys) > GET_MANY_MAX:
            raise invalid("$.keys", f"at most {GET_MANY_MAX}", limit=GET_MANY_MAX)
        levels, strong = levels_of(message.options), message.options.consistency_level == "strong"
        keys = [_key_at(each, at) for at, each in enumerate(message.keys)]

        async def get(key: bytes) -> Found:
            entry = None if strong or "L1" not in levels else cache.levels.at_once(key)
            return Found(entry, "L1") if entry is not None else await cache.levels.get(key, levels, strong=strong)

        all_found = await asyncio.gather(*map(get, keys))
        now, took = cache.clock.now_ms(), (time.perf_counter() - before) / len(keys)
        entries: list[CacheEntry | None] = []
        for key, found in zip(keys, all_found, strict=True):
            entry = found.entry
            cache.analytics.looked_up(
                parse_key(key).namespace, found.level, took, 0.0 if entry is None else entry.cost_ms
            )
            if entry is None:
                entries.append(None)
                continue
            uses = self._used(key, entry, now, found.record)
            value = asked.value_out(entry.value)
            wanted = message.options.include_metadata
            entries.append(described(key, entry, value, uses, now) if wanted else entry_of(value))
        unverified = any(found.unverified for found in all_found) or UNSET
        status: Any = "hit" if any(each is not None for each in entries) else "miss"
        return CacheResponse(u=message.u, status=status, entries=tuple(entries), unverified=unverified)

    async def _put(self, asked: Asked, within_s: float) -> CacheResponse:
        cache, message = self._cache, asked.message
        options, settings, key = message.options, cache.settings, asked.key
        assert message.key is not UNSET
        metadata = _NO_METADATA if message.metadata is UNSET else message.metadata
        value = value_in(message.value, asked.encoding, settings, "$.value")
        levels = levels_of(options)
        if "L3" not in levels:
            raise invalid("$.options.cache_levels", "a put writes L3, which gives it its version")
        copies = within(options.replication_factor, 1, 100, 1, "$.options.replication_factor")
        how: dict[str, Any] = {
            "ttl_ms": ttl_ms(metadata.ttl_seconds, settings, "$.metadata.ttl_seconds"),
            "stale_ms": ttl_ms(metadata.stale_seconds, settings, "$.metadata.stale_seconds"),
            "cost_ms": not_negative(metadata.computation_cost_ms, "$.metadata.computation_cost_ms"),
            "tags": tags_of(message.key),
            "dependencies": check_labels(metadata.dependencies, "$.metadata.dependencies"),
        }
        if how["stale_ms"] and not how["ttl_ms"]:
            raise invalid("$.metadata.stale_seconds", "only what has a TTL is ever stale")
        lease = "" if options.lease is UNSET else _lease_text(options.lease)
        cache.analytics.count(message.key.namespace, "put")
        written = await cache.levels.put(
            key, value, **how, lease=lease, wants_old=options.notify_on_change, levels=levels
        )
        assert written is not None, "only a copy with a version of its own can be too old"
        if lease:
            self._leases.get(asked.session, {}).pop(lease, None)
        replicas: Any = UNSET
        if copies > 1:
            replicas = await self._replication.copies(key, written.version, copies, within_s)
        old = None if written.old is None else value_out(written.old.entry.value)
        self._notify(asked, "put", old, value)
        return CacheResponse(u=message.u, status="stored", result={"version": written.version}, replicas=replicas)

    async def _renew(self, asked: Asked, within_s: float) -> CacheResponse:
        lease = _lease_of(asked.message)
        lasts_ms = 5_000 if asked.message.options.lease_ms is UNSET else lease_ms(asked.message.options)
        if not await self._cache.level.renew(asked.key, lease, lasts_ms):
            raise CacheError("CACHE_LEASE_LOST", "the lease is not this connection's any more")
        return CacheResponse(u=asked.message.u, status="stored")

    async def _release(self, asked: Asked, within_s: float) -> CacheResponse:
        lease = _lease_of(asked.message)
        self._leases.get(asked.session, {}).pop(lease, None)
        released = await self._cache.level.release(asked.key, lease)
        return CacheResponse(u=asked.message.u, status="deleted" if released else "miss")

    # --- removing -----------------------------------------------------------------------------------------------------

    async def _delete(self, asked: Asked, within_s: float) -> CacheResponse:
        cache, message = self._cache, asked.message
        key, options = asked.key, message.options
        cache.analytics.count(parse_key(key).namespace, "delete")
        written = await cache.levels.delete(key, wants_old=options.notify_on_change)
        assert written is not None, "nothing is guarded"
        count = int(written.changed)
        if options.cascade_dependencies is True:
            cascade = cache.invalidation(cascade=True, within_s=within_s)
            count += (await cascade.dependency(parse_key(key).reference)).count
        if written.changed:
            old = None if written.old is None else value_out(written.old.entry.value)
            self._notify(asked, "delete", old, None)
        return CacheResponse(
            u=message.u, status="deleted" if count else "miss", result={"count": count, "version": written.version}
        )

    async def _invalidate(self, asked: Asked, within_s: float) -> CacheResponse:
        cache, message = self._cache, asked.message
        given = [name for name in ("pattern", "tag", "dependency") if getattr(message, name) is not UNSET]
        if len(given) != 1:
            raise invalid(f"$.{given[1] if given else 'pattern'}", "one of pattern, tag and dependency is expected")
        most = within(message.max_entries, 1, _MOST, _MOST, "$.max_entries")
        cascade = message.options.cascade_dependencies is not False
        # It ends in good order a little before its time is up, so that the cursor is told.
        work = cache.invalidation(cascade=cascade, most=most, within_s=within_s * 0.8)
        if message.pattern is not UNSET:
            pattern = KeyPattern.parse(message.pattern, "$.pattern")
            if pattern.matches_everything and not message.options.confirm:
                raise invalid("$.pattern", "it matches everything; with `options.confirm` it is meant")
            cache.analytics.count(message.pattern.partition(".")[0] or "*", "invalidate")
            removed = await work.pattern(pattern, None if message.cursor is UNSET else message.cursor)
        else:
            cache.analytics.count("*", "invalidate")
            label = message.tag if message.tag is not UNSET else message.dependency
            assert isinstance(label, str), "one of the three is given"
            check_labels((label,), f"$.{given[0]}")
            removed = await (work.tag(label) if given == ["tag"] else work.dependency(label))
        self._notify_invalidated(message, removed)
        result: dict[str, Any] = {"count": removed.count, "cursor": removed.cursor}
        for field in ("reason", "source_change"):
            if (said := getattr(message.options, field)) is not UNSET:
                result[field] = said
        return CacheResponse(u=message.u, status="invalidated", result=result)

    # --- exact operations and structures ------------------------------------------------------------------------------

    async def _atomic(self, asked: Asked, within_s: float) -> CacheResponse:
        cache, message = self._cache, asked.message
        operation, key = message.atomic_operation, asked.key
        assert message.key is not UNSET
        if operation is UNSET:
            raise invalid("$.atomic_operation", "is missing")
        cache.analytics.count(message.key.namespace, "atomic")
        tags = tags_of(message.key)
        with cache.levels.unsure(key):
            done = await cache.atomics.run(key, operation, asked.encoding, tags)
        if done.success and operation.operation_type != "extend_ttl":
            cache.levels.changed(key, done.version, done.new)
            self._notify(asked, operation.operation_type, None if done.old is None else value_out(done.old), done.new)
        return CacheResponse(u=message.u, status="stored" if done.success else "conflict", result=done.result)

    async def _structure(self, asked: Asked, within_s: float) -> CacheResponse:
        cache, message = self._cache, asked.message
        operation = message.structure_operation
        if operation is UNSET:
            raise invalid("$.structure_operation", "is missing")
        key = asked.key
        assert message.key is not UNSET
        cache.analytics.count(message.key.namespace, "structure")
        tags = tags_of(message.key)
        if tags and operation.operation in ("add", "append", "prepend", "insert", "set_field", "add_scored"):
            await cache.levels.indexes.add(key, Meta(STRUCTURE, tags), 0)
        answer = await cache.structures.run(parse_key(key), operation, asked.encoding)
        if answer.changed:
            version = cache.clock.now_ms() * 1000
            cache.levels.announce(Update("put", key, version))
            self._notify(asked, operation.operation, None, None)
        reads = operation.operation not in WRITES or "pop" in operation.operation
        status: Any = "miss" if not answer.there else "hit" if reads else "stored"
        return CacheResponse(u=message.u, status=status, result=answer.result)

    async def _namespace(self, asked: Asked, within_s: float) -> CacheResponse:
        cache, message = self._cache, asked.message
        operation = message.namespace_operation
        if operation is UNSET:
            raise invalid("$.namespace_operation", "is missing")
        status, result = await cache.namespaces.run(operation, within_s * 0.8)
        cache.analytics.count(operation.namespace, "namespace")
        if operation.operation_type == "statistics":
            now = time.time()
            result["requests"] = cache.analytics.statistics(operation.namespace, now - 86_400, now)
        return CacheResponse(u=message.u, status=status, result=result)

    # --- notices ----------------------------------------------------------------------------------------------------

    def _notify(self, asked: Asked, operation: str, old: Any, new: bytes | None) -> None:
        options = asked.message.options
        if options.notify_on_change:
            key = parse_key(asked.key)
            reason = None if options.reason is UNSET else options.reason
            value = None if new is None else value_out(new)
            self._tell(topic_of(key, options), notice(key, options, operation, old, value, reason))

    def _notify_invalidated(self, message: CacheRequest, removed: Removed) -> None:
        options = message.options
        if not options.notify_on_change or not removed.count:
            return
        topic = "cache.invalidated" if options.notification_topic is UNSET else options.notification_topic
        said: dict[str, Any] = {} if options.notification_payload is UNSET else dict(options.notification_payload)
        said |= {"operation": "invalidate", "count": removed.count}
        for field in ("pattern", "tag", "dependency"):
            if (value := getattr(message, field)) is not UNSET:
                said[field] = value
        for field in ("reason", "source_change"):
            if (value := getattr(options, field)) is not UNSET:
                said[field] = value
        self._tell(topic, said)

    def _tell(self, topic: str, payload: dict[str, Any] | None) -> None:
        if payload is None:
            return
        try:
            self._publish(topic, payload)
        except MpregError as error:
            log.warning("A change could not be published on %s: %s", topic, error)


def _key_at(key: Any, at: int) -> bytes:
    try:
        return store_key(key.namespace, key.identifier, key.version)
    except CacheError as error:
        path = error.details["path"].replace("$.key", f"$.keys[{at}]")
        raise invalid(path, error.message.partition(": ")[2]) from None


def _lease_of(message: CacheRequest) -> str:
    if message.options.lease is UNSET:
        raise invalid("$.options.lease", "is missing")
    return _lease_text(message.options.lease)


def _lease_text(lease: str) -> str:
    if not (lease.isdecimal() and lease.isascii() and len(lease) <= 16):
        raise invalid("$.options.lease", "is none that a get has answered")
    return lease

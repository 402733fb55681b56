"""The cache as messages: what connections ask, what they are told.

A get that memory can answer is answered in the turn in which it came. Everything else waits for the store in a task of
its own, within the time that the request has.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from msgspec import UNSET

from mpreg.cache.answers import Asked, entry_of, error_response_of
from mpreg.cache.cache import Cache
from mpreg.cache.coherence import Update, from_wire
from mpreg.cache.operations import Operations
from mpreg.cache.requests import levels_of, timeout_s
from mpreg.cache.watching import Watching
from mpreg.deadlines import Deadlines
from mpreg.errors import CacheError, MpregError, ProtocolError, ResourceError
from mpreg.transport.session import Session
from mpreg.wire.cache import CacheAnalytics, CacheRequest, CacheResponse, CacheWatch, Period
from mpreg.wire.encoding import Encoding
from mpreg.wire.gossip import CacheUpdate
from mpreg.wire.message import Message

log = logging.getLogger(__name__)

Publish = Callable[[str, Any], None]
LONG: Final = frozenset({"invalidate", "namespace", "delete"})
_HOUR_S: Final = 3600.0


class CacheService:
    """`cache` is None on a node without a store; then every request is refused."""

    def __init__(self, cache: Cache | None, publish: Publish) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)
        self.cache = cache
        self.node = secrets.token_hex(5)
        self.watching = Watching()
        self._operations = None if cache is None else Operations(cache, publish)
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False

    @property
    def handlers(self) -> Mapping[type[Message], Callable[[Session, Any, Encoding], None]]:
        return {CacheRequest: self.request, CacheAnalytics: self.analytics, CacheWatch: self.watch}

    async def start(self) -> None:
        if self.cache is not None:
            await self.cache.start()

    async def drain(self, grace_s: float) -> None:
        self._draining = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._deadlines.close()
        if self.cache is not None:
            await self.cache.close()

    def closed(self, session: Session) -> None:
        """The connection is gone: what it was about to compute, someone else may."""
        self.watching.forget(session)
        if self._operations is not None:
            for release in self._operations.abandoned(session):
                self._spawn(release)

    def report(self) -> dict[str, Any]:
        if self.cache is None:
            return {}
        memory = self.cache.levels.memory
        held = {} if memory is None else {"l1_entries": len(memory), "l1_bytes": memory.size_bytes}
        return {**self.cache.analytics.report(), **held, "watchers": len(self.watching), "waiting": len(self._tasks)}

    # --- what connections ask ---------------------------------------------------------------------------------------

    def request(self, session: Session, message: CacheRequest, encoding: Encoding) -> None:
        cache = self._cache()
        asked = Asked(session, message, encoding)
        if message.operation == "get" and message.key is not UNSET and self._answer_at_once(cache, asked):
            return
        if self._draining:
            raise ResourceError("RESOURCE_SHUTTING_DOWN", "The node is stopping and takes no new work")
        limit = cache.settings.requests_max
        if len(self._tasks) >= limit:
            raise ResourceError("RESOURCE_EXHAUSTED", f"{limit} requests of the cache wait, which is the limit")
        settings = cache.settings
        try:
            levels_of(message.options)
            default_ms = settings.long_timeout_ms if message.operation in LONG else settings.timeout_ms
            within_s = timeout_s(message.options, default_ms)
        except CacheError as error:
            self._refuse(asked, error)
            return
        task = self._spawn(self._answer(asked, within_s))
        asked.deadline = self._deadlines.add(within_s, partial(self._expire, asked, task, within_s))

    def _answer_at_once(self, cache: Cache, asked: Asked) -> bool:
        message = asked.message
        options = message.options
        if options.consistency_level == "strong" or (
            options.cache_levels is not UNSET and "L1" not in options.cache_levels
        ):
            return False
        before = time.perf_counter()
        try:
            key = asked.key
        except CacheError as error:
            self._refuse(asked, error)
            return True
        entry = cache.levels.at_once(key)
        if entry is None:
            return False
        cache.analytics.looked_up(message.key.namespace, "L1", time.perf_counter() - before, entry.cost_ms)  # type: ignore[union-attr]
        now = cache.clock.now_ms()
        uses = cache.uses.used(key, entry.version, now)
        if not options.include_metadata:
            value = asked.value_out(entry.value)
            asked.send(CacheResponse(u=message.u, status="hit", cache_level="L1", entry=entry_of(value)))
        else:
            asked.send_found(cache, entry, "L1", uses, now, before)
        return True

    async def _answer(self, asked: Asked, within_s: float) -> None:
        assert self._operations is not None
        try:
            response = await self._operations.run(asked, within_s)
        except MpregError as error:
            self._refuse(asked, error)
        except Exception:
            log.exception("A request of the cache could not be handled")
            failed = ProtocolError("PROTOCOL_INTERNAL_ERROR", "The node failed; its log says why", state_changed=None)
            self._refuse(asked, failed)
        else:
            asked.send(response)
        finally:
            asked.deadline.cancel()

    def _expire(self, asked: Asked, task: asyncio.Task[None], within_s: float) -> None:
        if not task.done():
            reads = asked.message.operation in ("get", "get_many")
            text = f"no answer within {within_s * 1000:.0f} ms"
            changed = False if reads else None
            self._refuse(asked, CacheError("CACHE_TIMEOUT", text, timeout_ms=within_s * 1000, state_changed=changed))
            task.cancel()

    def _refuse(self, asked: Asked, error: MpregError) -> None:
        asked.send(error_response_of(asked.message.u, error))

    def analytics(self, session: Session, message: CacheAnalytics, encoding: Encoding) -> None:
        cache = self._cache()
        now = time.time()
        period = Period(start=now - _HOUR_S, end=now) if message.period is UNSET else message.period
        if not 0 <= period.start <= period.end < 1e12:
            raise ProtocolError("PROTOCOL_INVALID_MESSAGE", "a period ends after it starts", path="$.period")
        namespace = None if message.namespace is UNSET else message.namespace
        found = cache.analytics.statistics(namespace, period.start, period.end)
        whole = Period(start=period.start, end=period.end, duration_seconds=period.end - period.start)
        session.send(CacheAnalytics(u=message.u, namespace=message.namespace, period=whole, statistics=found), encoding)

    def watch(self, session: Session, message: CacheWatch, encoding: Encoding) -> None:
        cache = self._cache()
        self.watching.set(session, encoding, message.namespaces, cache.settings.watchers_max)
        session.send(CacheResponse(u=message.u, status="hit", result={"namespaces": message.namespaces}), encoding)

    # --- what other nodes say ---------------------------------------------------------------------------------------

    def heard(self, update: Update) -> None:
        """`cache_update` of another node."""
        if self.cache is not None:
            self.cache.levels.heard(update)
            self.watching.tell(update)

    def heard_gossip(self, payload: CacheUpdate) -> None:
        """The same, as nodes of a cluster say it; from what it can't understand it learns nothing."""
        try:
            self.heard(from_wire(payload))
        except CacheError as error:
            log.debug("News of the cache that say nothing: %s", error)

    def missed(self) -> None:
        """Some of what other nodes said is lost."""
        if self.cache is not None:
            self.cache.levels.missed()
            self.watching.tell_lost()

    def _cache(self) -> Cache:
        if self.cache is None:
            raise CacheError("CACHE_STORE_UNAVAILABLE", "This node runs without a store", retryable=False)
        return self.cache

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

"""The cache of a node, as its service and its own functions use it: every operation, without messages."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from mpreg.cache.analytics import Analytics
from mpreg.cache.atomics import Atomics
from mpreg.cache.clock import StoreClock
from mpreg.cache.coherence import Announce
from mpreg.cache.disk import DiskLevel
from mpreg.cache.invalidation import Invalidation
from mpreg.cache.key import cache_key, key_bytes, namespace_of
from mpreg.cache.leases import Leases, while_renewed
from mpreg.cache.levels import Beyond, Levels
from mpreg.cache.memory import make_memory
from mpreg.cache.namespaces import Namespaces
from mpreg.cache.requests import LEVELS, packed, ttl_ms, value_out
from mpreg.cache.scanning import Scanner
from mpreg.cache.settings import CacheSettings
from mpreg.cache.store_level import StoreLevel
from mpreg.cache.structures import Structures
from mpreg.cache.uses import Uses
from mpreg.errors import CacheError
from mpreg.store import Store

FLUSH_S = 5.0
LEASE_MS = 5_000


class Keeping(msgspec.Struct, frozen=True):
    """How a computed value is kept; 0: no such time."""

    ttl_ms: int
    stale_ms: int
    negative_ttl_ms: int
    tags: tuple[str, ...]


class Cache:
    def __init__(
        self,
        store: Store,
        settings: CacheSettings,
        *,
        disk_path: Path | None = None,
        beyond: Beyond | None = None,
        announce: Announce = lambda update: None,
    ) -> None:
        """`disk_path` is where L2 is kept, if the settings have one."""
        self.settings = settings
        self._disk_path = disk_path if settings.disk_bytes_max else None
        self.clock = StoreClock(time.monotonic)
        self.level = StoreLevel(store, self.clock)
        self.levels = Levels(
            self.level,
            self.clock,
            memory=make_memory(settings.memory, self.evicted),
            beyond=beyond,
            announce=announce,
            revalidate_ms=int(settings.revalidate_s * 1000),
        )
        self.leases = Leases(self.level)
        self.scanner = Scanner(self.level)
        self.atomics = Atomics(self.level, settings)
        self.structures = Structures(self.level, settings)
        self.namespaces = Namespaces(self.levels, self.scanner, settings)
        self.analytics = Analytics(time.time, settings.usd_per_compute_hour)
        self.uses = Uses()
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.level.read_clock()
        if self._disk_path is not None:
            self.levels.disk = await DiskLevel.open(
                self._disk_path,
                entries_max=self.settings.disk_entries_max,
                bytes_max=self.settings.disk_bytes_max,
                on_evicted=self.evicted,
            )
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self.leases.close()
        await self.levels.close()
        self.level.close()

    async def _keep(self) -> None:
        """What has to be done now and then: look at the store's clock, tell it what was used."""
        while True:
            await asyncio.sleep(FLUSH_S)
            with contextlib.suppress(CacheError):
                if not self.clock.is_recent:
                    await self.level.read_clock()
                await self.flush_uses()

    async def flush_uses(self) -> None:
        for key, use in self.uses.take():
            await self.level.touch(key, use.version, use.new, use.used_ms)

    def evicted(self, key: bytes, why: str) -> None:
        self.analytics.evicted(namespace_of(key), why)

    def invalidation(self, *, cascade: bool, most: int | None = None, within_s: float = 60.0) -> Invalidation:
        deadline = asyncio.get_running_loop().time() + within_s
        limit = self.settings.invalidated_max
        return Invalidation(
            self.levels, self.scanner, cascade=cascade, most=min(most or limit, limit), deadline=deadline
        )

    # --- for the node's own functions -----------------------------------------------------------------------------

    async def get_or_compute(
        self,
        namespace: str,
        identifier: str,
        compute: Callable[[], Awaitable[Any]],
        *,
        ttl_s: float | None = None,
        stale_s: float | None = None,
        negative_ttl_s: float | None = None,
        tags: tuple[str, ...] = (),
    ) -> Any:
        """The value, computed once in the cluster however many ask (R-C7). None is kept only for `negative_ttl_s`. When
        the store is gone, it is computed and not kept."""
        how = Keeping(
            ttl_ms(ttl_s, self.settings, "ttl"),
            ttl_ms(stale_s, self.settings, "stale"),
            ttl_ms(negative_ttl_s, self.settings, "negative_ttl"),
            tags,
        )
        key = key_bytes(cache_key(namespace, identifier))
        before, level = time.perf_counter(), "L1"
        entry = self.levels.at_once(key)
        if entry is None:
            try:
                found = await self.levels.get(key, LEVELS)
                entry, level = found.entry, found.level or "L3"
                fresh = entry is not None and entry.is_fresh(self.clock.now_ms())
                leased = None if fresh or found.unverified else await self.leases.acquire(key, LEASE_MS)
            except CacheError as error:
                if error.code != "CACHE_STORE_UNAVAILABLE":
                    raise
                return await compute()
            if leased is not None:
                entry = None if leased.record is None else leased.record.entry
                if leased.lease:
                    self.analytics.looked_up(namespace, None, time.perf_counter() - before, 0)

                    async def refresh() -> Any:
                        return await self._compute(key, leased.lease, compute, how)

                    if entry is None:
                        return await refresh()
                    self.levels.spawn(refresh())
        assert entry is not None
        self.analytics.looked_up(namespace, level, time.perf_counter() - before, entry.cost_ms)
        return value_out(entry.value)

    async def _compute(self, key: bytes, lease: str, compute: Callable[[], Awaitable[Any]], how: Keeping) -> Any:
        begun = time.perf_counter()
        try:
            value = await while_renewed(lambda: self.level.renew(key, lease, LEASE_MS), LEASE_MS, compute)
        except BaseException:
            self.levels.spawn(self.level.release(key, lease))
            raise
        if value is None and not how.negative_ttl_ms:
            self.levels.spawn(self.level.release(key, lease))
            return value
        with contextlib.suppress(CacheError):  # deleted meanwhile, or not to be stored: the caller has it all the same
            await self.levels.put(
                key,
                packed(msgspec.to_builtins(value, builtin_types=(bytes,)), self.settings, "$.value"),
                ttl_ms=how.ttl_ms if value is not None else how.negative_ttl_ms,
                stale_ms=how.stale_ms if value is not None else 0,
                cost_ms=(time.perf_counter() - begun) * 1000,
                tags=how.tags,
                lease=lease,
            )
        return value

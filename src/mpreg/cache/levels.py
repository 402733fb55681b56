"""Walks down the levels and fills them on the way up (R-C3), and keeps what the node holds honest.

The invariants: on one node a read never goes back in time, and nothing that was deleted comes back. The node's levels
take a value only if nothing newer was heard of its key since it was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from mpreg.cache.clock import StoreClock
from mpreg.cache.coherence import Announce, Update, value_hash
from mpreg.cache.entry import Entry
from mpreg.cache.indexes import Indexes, new_meta
from mpreg.cache.patterns import KeyPattern
from mpreg.cache.record import Meta, Record
from mpreg.cache.store_level import StoreLevel, Written
from mpreg.cache.tier import Disk, Memory
from mpreg.errors import CacheError
from mpreg.wire.cache import CacheLevel

Beyond = Callable[[bytes], Awaitable[Entry | None]]
"""L4: asks other clusters."""

_ANY_VERSION: Final = 2**53 - 1
_WHOLE_ANNOUNCED: Final = 256 * 1024
"""Larger values are announced without their hash, which would take longer than it saves."""


class Found(msgspec.Struct, frozen=True):
    entry: Entry | None
    level: CacheLevel | None = None
    unverified: bool = False
    """The store could not be asked whether this is still current."""
    record: Record | None = None
    """If it came from the store."""


MISS: Final = Found(None)


class Under:
    """A key that is being read or written: the highest version that was heard of meanwhile."""

    __slots__ = ("floor", "users")

    def __init__(self) -> None:
        self.floor = 0
        self.users = 0


class Levels:
    def __init__(
        self,
        store: StoreLevel,
        clock: StoreClock,
        *,
        memory: Memory | None = None,
        disk: Disk | None = None,
        beyond: Beyond | None = None,
        announce: Announce = lambda update: None,
        revalidate_ms: int = 30_000,
    ) -> None:
        self.store = store
        self.clock = clock
        self.memory = memory
        self.disk = disk
        self.beyond = beyond
        self.announce = announce
        self.indexes = Indexes(store)
        self._revalidate_ms = revalidate_ms
        self._trusted_ms = 0
        self._under: dict[bytes, Under] = {}
        self._reading: dict[bytes, asyncio.Task[Record | None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- reading --------------------------------------------------------------------------------------------------

    def at_once(self, key: bytes) -> Entry | None:
        """What memory holds, if it can be served without asking anybody."""
        memory = self.memory
        if memory is None:
            return None
        now = self.clock.now_ms()
        entry = memory.get(key, now)
        return entry if entry is not None and self._is_current(entry) and entry.is_fresh(now) else None

    async def get(self, key: bytes, levels: Collection[CacheLevel], *, strong: bool = False) -> Found:
        """`strong` is what the store says now. Else a level above may answer, and if the store is gone it may do so
        without being sure."""
        if not strong:
            found = await self._get_above(key, levels)
            if found is not None:
                return found
        if "L3" in levels:
            record = await (self._read(key, levels) if strong else self._read_together(key, levels))
            if record is not None:
                return Found(record.entry, "L3", record=record)
        if "L4" in levels and self.beyond is not None:
            entry = await self.beyond(key)
            if entry is not None:
                return Found(entry, "L4")
        return MISS

    async def _get_above(self, key: bytes, levels: Collection[CacheLevel]) -> Found | None:
        now = self.clock.now_ms()
        if "L1" in levels and self.memory is not None:
            entry = self.memory.get(key, now)
            if entry is not None:
                found = await self._verified(key, entry, "L1")
                if found is not None:
                    return found
        if "L2" in levels and self.disk is not None:
            under = self._enter(key)
            try:
                entry = await self.disk.get(key, now)
                if entry is not None and entry.version >= under.floor:
                    found = await self._verified(key, entry, "L2")
                    if found is not None and found.entry is not None:
                        self._keep(key, found.entry, under, [level for level in levels if level == "L1"])
                        return found
            finally:
                self._leave(key, under)
        return None

    async def _verified(self, key: bytes, entry: Entry, level: CacheLevel) -> Found | None:
        """None: it is out of date, look further down."""
        if self._is_current(entry):
            return Found(entry, level)
        asked_ms = self.clock.steady_ms()
        try:
            version = await self.store.version(key)
        except CacheError as error:
            if error.code != "CACHE_STORE_UNAVAILABLE":
                raise
            return Found(entry, level, unverified=True)
        if version != entry.version:
            self._drop(key, version or entry.version + 1)
            return None
        checked = msgspec.structs.replace(entry, checked_ms=asked_ms)
        if level == "L1" and self.memory is not None:
            held = self.memory.peek(key)
            if held is not None and held.version == entry.version:
                self.memory.renew(key, checked)
        return Found(checked, level)

    def _is_current(self, entry: Entry) -> bool:
        """Nobody tells of changes while the store is gone."""
        recently = self.clock.steady_ms() - entry.checked_ms <= self._revalidate_ms
        return recently and entry.checked_ms > self._trusted_ms and self.store.is_up

    async def _read_together(self, key: bytes, levels: Collection[CacheLevel]) -> Record | None:
        """All who miss one key at the same time read it once."""
        task = self._reading.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read(key, levels))
            self._reading[key] = task
            task.add_done_callback(lambda done: self._read_done(key, done))
        return await asyncio.shield(task)

    def _read_done(self, key: bytes, task: asyncio.Task[Record | None]) -> None:
        del self._reading[key]
        if not task.cancelled():
            task.exception()  # who waited has it

    async def _read(self, key: bytes, levels: Collection[CacheLevel]) -> Record | None:
        under = self._enter(key)
        try:
            asked_ms = self.clock.steady_ms()
            record = await self.store.get(key)
            if record is None:
                self._drop(key, 2**53)
            else:
                self._keep(key, msgspec.structs.replace(record.entry, checked_ms=asked_ms), under, levels)
            return record
        finally:
            self._leave(key, under)

    # --- writing --------------------------------------------------------------------------------------------------

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        ttl_ms: int = 0,
        stale_ms: int = 0,
        cost_ms: float = 0.0,
        tags: tuple[str, ...] = (),
        dependencies: tuple[str, ...] = (),
        lease: str = "",
        version: int = 0,
        wants_old: bool = False,
        levels: Collection[CacheLevel] = ("L1", "L2"),
    ) -> Written | None:
        """The store first, then what the node holds. None: an older copy than what is there."""
        under = self._enter(key)
        try:
            meta = new_meta(tags, dependencies)
            if meta is not None:
                await self.indexes.add(key, meta, ttl_ms + stale_ms if ttl_ms else 0)
            asked_ms = self.clock.steady_ms()
            with self.unsure(key):
                written = await self.store.put(
                    key,
                    value,
                    ttl_ms=ttl_ms,
                    stale_ms=stale_ms if ttl_ms else 0,
                    cost_ms=cost_ms,
                    meta=meta,
                    lease=lease,
                    version=version,
                    wants_old=wants_old,
                )
            if written is None:
                return None
            expires_ms = written.now_ms + ttl_ms + stale_ms if ttl_ms else 0
            entry = Entry(
                value=value,
                version=written.version,
                created_ms=written.now_ms,
                expires_ms=expires_ms,
                fresh_until_ms=written.now_ms + ttl_ms if ttl_ms and stale_ms else 0,
                cost_ms=cost_ms,
                tags=tags,
                dependencies=dependencies,
                checked_ms=asked_ms,
            )
            self._keep(key, entry, under, levels)
            if self.disk is not None and "L2" not in levels:
                self.spawn(self.disk.remove(key))
        finally:
            self._leave(key, under)
        self._unindex(key, written.old_meta)
        self._tell("put", key, written.version, value)
        return written

    async def delete(self, key: bytes, **how: Any) -> Written | None:
        """As `StoreLevel.delete`."""
        with self.unsure(key):
            written = await self.store.delete(key, **how)
        if written is None:
            return None
        self._drop(key, written.version or 2**53)
        if written.version:
            self._unindex(key, written.old_meta)
            self._tell("delete", key, written.version, b"")
        return written

    @contextmanager
    def unsure(self, key: bytes) -> Iterator[None]:
        """Around a write. If its answer does not come, it may have happened: nobody keeps what was there before."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, CacheError) or error.state_changed is not False:
                self._drop(key, _ANY_VERSION)
                self.announce(Update("put", key, _ANY_VERSION))
            raise

    def changed(self, key: bytes, version: int, value: bytes | None) -> None:
        """An exact operation has written to the store; the node forgets what it held."""
        self._drop(key, version)
        self._tell("put", key, version, value or b"")

    def _unindex(self, key: bytes, meta: Meta) -> None:
        if meta.tags or meta.dependencies:
            self.spawn(self.indexes.remove(key, meta))

    def _tell(self, operation: Any, key: bytes, version: int, value: bytes) -> None:
        digest = value_hash(value) if value and len(value) <= _WHOLE_ANNOUNCED else ""
        self.announce(Update(operation, key, version, digest))

    # --- what others say ------------------------------------------------------------------------------------------

    def heard(self, update: Update) -> None:
        if update.key:
            self._drop(update.key, update.version)
        else:
            self.drop_matching(KeyPattern.parse(update.pattern, "$.pattern"), update.version)

    def missed(self) -> None:
        """Some of what others said is lost: whatever the node holds has to be checked before it is served."""
        self._trusted_ms = self.clock.steady_ms()
        for under in self._under.values():
            under.floor = 2**53

    def drop_matching(self, pattern: KeyPattern, version: int) -> None:
        for under in self._under.values():
            under.floor = max(under.floor, version)
        if self.memory is not None:
            held = self.memory.keys()
            for key in held:
                if pattern.matches(key):
                    self._drop_held(key, version)
        if self.disk is not None:
            self.spawn(self._drop_on_disk(pattern))

    async def _drop_on_disk(self, pattern: KeyPattern) -> None:
        assert self.disk is not None
        for key in await self.disk.keys():
            if pattern.matches(key):
                await self.disk.remove(key)

    def spawn(self, work: Any) -> None:
        """Goes on beside the request; what the store does not do now is found out later, as if it had been missed."""
        task = asyncio.get_running_loop().create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in [*self._tasks, *self._reading.values()]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.disk is not None:
            await self.disk.close()

    # --- what the node holds --------------------------------------------------------------------------------------

    def _enter(self, key: bytes) -> Under:
        under = self._under.get(key)
        if under is None:
            under = self._under[key] = Under()
        under.users += 1
        return under

    def _leave(self, key: bytes, under: Under) -> None:
        under.users -= 1
        if not under.users:
            del self._under[key]

    def _keep(self, key: bytes, entry: Entry, under: Under, levels: Collection[CacheLevel]) -> None:
        if entry.version < under.floor:
            return
        under.floor = entry.version
        if "L1" in levels and self.memory is not None:
            held = self.memory.peek(key)
            if held is None or held.version <= entry.version:
                self.memory.put(key, entry)
        else:
            self._drop_held(key, entry.version)
        if "L2" in levels and self.disk is not None:
            self.spawn(self.disk.put(key, entry))

    def _drop(self, key: bytes, version: int) -> None:
        """Forget what is older than `version`."""
        under = self._under.get(key)
        if under is not None and version < 2**53:
            under.floor = max(under.floor, version)
        self._drop_held(key, version)
        if self.disk is not None:
            self.spawn(self.disk.remove(key))

    def _drop_held(self, key: bytes, version: int) -> None:
        if self.memory is not None:
            held = self.memory.peek(key)
            if held is not None and held.version < version:
                self.memory.remove(key)


async def _quietly(work: Awaitable[Any]) -> None:
    try:
        await work
    except CacheError:
        return

"""L3: the store that all nodes share. Each verb is one script or one native command on one key, so each is exact
whoever else is at it (R-C4); what only finds keys (tags, dependencies) is beside, in `indexes`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from mpreg.cache.clock import StoreClock
from mpreg.cache.entry import Entry
from mpreg.cache.record import HEADER_BYTES, Meta, Record, lease_in, pack_meta, unpack, unpack_meta, version_in
from mpreg.errors import CacheError, StoreError
from mpreg.store import Script, Store
from mpreg.store.slots import slot_of

_FOLDER: Final = "mpreg.cache"
LOOK_S: Final = 0.1
"""How often what waits for the store looks whether it is still there."""
WRONG_TYPE: Final = -2
OUT_OF_RANGE: Final = -3
TOO_LARGE: Final = -4


def script(name: str, *libraries: str) -> Script:
    parts = [Script.load(_FOLDER, f"lua/{part}.lua").source for part in ("record", *libraries, name)]
    return Script.of(b"".join(parts), f"cache.{name}")


PUT: Final = script("put")
DELETE: Final = script("delete")
LEASE: Final = script("lease")
RENEW: Final = script("lease_renew")
RELEASE: Final = script("lease_release")
TOUCH: Final = script("touch")
SWAP: Final = script("swap", "atomic")
INCREMENT: Final = script("increment", "atomic", "numbers")
APPEND: Final = script("append", "atomic")
EXTEND: Final = script("extend")


class Written(msgspec.Struct, frozen=True):
    """What a write or a delete has done. `version` 0: nothing was there to delete."""

    version: int
    now_ms: int
    changed: bool = True
    old_meta: Meta = Meta("")
    old: Record | None = None
    """If it was asked for."""


class Leased(msgspec.Struct, frozen=True):
    """What `lease` found: a record, or None; `lease` if the caller is the one to compute it; else until when another
    one may."""

    record: Record | None
    now_ms: int
    lease: str = ""
    until_ms: int = 0
    stale: bool = False


class Changed(msgspec.Struct, frozen=True):
    """What an exact operation did. Values are in MessagePack; None: nothing is there."""

    success: bool
    version: int
    now_ms: int
    old: bytes | None
    new: bytes | None


class StoreLevel:
    def __init__(self, store: Store, clock: StoreClock) -> None:
        self.store = store
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        self._pending: set[asyncio.Future[Any]] = set()
        self._looking: asyncio.TimerHandle | None = None

    @property
    def is_up(self) -> bool:
        return any(link.is_up for link in self.store.primaries())

    async def run(self, verb: Script, key: bytes, *args: Any) -> Any:
        """Raises CACHE_STORE_UNAVAILABLE, at once if there is no connection at all."""
        return await self.run_on(verb, (key,), *args)

    async def run_on(self, verb: Script, keys: Sequence[bytes], *args: Any) -> Any:
        """As `run`, for several keys, which must be in one slot."""
        self.check()
        try:
            return await self._minded(self.store.send_script(verb, keys, args))
        except StoreError as error:
            raise unavailable(error) from None

    def in_one_slot(self, keys: Sequence[bytes]) -> bool:
        return self.store.url.kind != "cluster" or len(set(map(slot_of, keys))) == 1

    async def command(self, *args: Any) -> Any:
        self.check()
        try:
            return await self._minded(self.store.send(*args))
        except StoreError as error:
            raise unavailable(error) from None

    def _minded(self, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """A command that has not left when the connection breaks would wait for the next one; nobody here does."""
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        if self._looking is None:
            self._looking = self._loop.call_later(LOOK_S, self._look)
        return future

    def _look(self) -> None:
        self._looking = None
        if self._pending and not self.is_up:
            for future in list(self._pending):
                if not future.done():
                    future.set_exception(StoreError("STORE_UNAVAILABLE", "the store can't be reached"))
        if self._pending:
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    def check(self) -> None:
        if not self.is_up:
            raise CacheError("CACHE_STORE_UNAVAILABLE", "the store can't be reached")

    async def read_clock(self) -> None:
        sent = time.monotonic()
        seconds, micros = await self.command(b"TIME")
        self.clock.heard(int(seconds) * 1000 + int(micros) // 1000, sent)

    # --- values ---------------------------------------------------------------------------------------------------

    async def get(self, key: bytes) -> Record | None:
        return self.record_in(await self.command(b"GET", key))

    def record_in(self, data: bytes | None) -> Record | None:
        return None if data is None else unpack(data, self.clock.now_ms())

    async def version(self, key: bytes) -> int:
        """Of the value that is there now; 0 if there is none."""
        return version_in(await self.command(b"GETRANGE", key, 0, 8))

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        ttl_ms: int = 0,
        stale_ms: int = 0,
        cost_ms: float = 0.0,
        meta: Meta | None = None,
        lease: str = "",
        version: int = 0,
        wants_old: bool = False,
    ) -> Written | None:
        """None: an older copy, which changes nothing. A plain write takes the place of whatever is computed."""
        sent = time.monotonic()
        answer = await self.run(
            PUT,
            key,
            value,
            ttl_ms,
            stale_ms,
            cost_ms,
            b"" if meta is None else pack_meta(meta),
            lease,
            version or "",
            "o" if wants_old else "",
        )
        if answer[0] == 0:
            return None
        if answer[0] == -1:
            raise lease_lost()
        _check(answer[0])
        self.clock.heard(answer[2], sent)
        return Written(answer[1], answer[2], True, unpack_meta(answer[3]), unpack(answer[4]))

    async def delete(
        self, key: bytes, *, guard: Literal["", "v", "n"] = "", guarded: str | int = "", wants_old: bool = False
    ) -> Written | None:
        """None: the guard did not let it."""
        sent = time.monotonic()
        answer = await self.run(DELETE, key, guard, guarded, "o" if wants_old else "")
        if answer[0] == -1:
            return None
        self.clock.heard(answer[2], sent)
        if len(answer) < 5:
            return Written(answer[1], answer[2], False)
        return Written(answer[1], answer[2], bool(answer[0]), unpack_meta(answer[3]), unpack(answer[4]))

    async def touch(self, key: bytes, version: int, uses: int, used_ms: int) -> None:
        await self.run(TOUCH, key, version, uses, used_ms)

    # --- who computes it --------------------------------------------------------------------------------------------

    async def lease(self, key: bytes, lease_ms: int) -> Leased:
        sent = time.monotonic()
        answer = await self.run(LEASE, key, lease_ms)
        _check(answer[0])
        state, now_ms = answer[0], answer[1]
        self.clock.heard(now_ms, sent)
        record = self.record_in(answer[2])
        if state == 0:
            return Leased(record, now_ms)
        lease = answer[3].decode() if state in (1, 3) else ""
        return Leased(record, now_ms, lease, answer[4], stale=state in (1, 2))

    async def is_leased(self, key: bytes) -> bool:
        """Whether someone computes the value, as far as the record says."""
        head = await self.command(b"GETRANGE", key, 0, HEADER_BYTES - 1)
        return lease_in(head) > self.clock.now_ms()

    async def renew(self, key: bytes, lease: str, lease_ms: int) -> bool:
        return bool(await self.run(RENEW, key, lease, lease_ms))

    async def release(self, key: bytes, lease: str) -> bool:
        return bool(await self.run(RELEASE, key, lease))

    # --- exact operations -------------------------------------------------------------------------------------------

    async def swap(
        self,
        key: bytes,
        expected: bytes | None,
        new: bytes,
        *,
        absent_matches: bool = False,
        ttl_ms: int = 0,
        meta: Meta | None = None,
    ) -> Changed:
        """`expected` None: only if nothing is there. Values are compared by their bytes."""
        mode = "x" if expected is None else "c"
        args = (mode, expected or b"", new, ttl_ms or "", _meta(meta), "1" if absent_matches else "")
        return await self._change(SWAP, key, args, new)

    async def increment(
        self, key: bytes, by: str, initial: bytes, *, create: bool = True, ttl_ms: int = 0, meta: Meta | None = None
    ) -> Changed:
        return await self._change(INCREMENT, key, (by, initial, "1" if create else "", ttl_ms or "", _meta(meta)))

    async def append(
        self,
        key: bytes,
        value: bytes,
        *,
        front: bool = False,
        create: bool = True,
        ttl_ms: int = 0,
        meta: Meta | None = None,
        bytes_max: int,
    ) -> Changed:
        where = "p" if front else "a"
        args = (where, value, "1" if create else "", ttl_ms or "", _meta(meta), bytes_max)
        return await self._change(APPEND, key, args)

    async def extend(self, key: bytes, ttl_ms: int) -> tuple[bool, int, int]:
        """Whether something is there, its version (a structure has none), and when it ends (0: never)."""
        answer = await self.run(EXTEND, key, ttl_ms)
        return bool(answer[0]), answer[1], answer[3]

    async def _change(self, verb: Script, key: bytes, args: Sequence[Any], new: bytes | None = None) -> Changed:
        sent = time.monotonic()
        answer = await self.run(verb, key, *args)
        _check(answer[0])
        success, version, now_ms, old = answer[:4]
        self.clock.heard(now_ms, sent)
        written = answer[4] if len(answer) > 4 else new
        return Changed(bool(success), version, now_ms, old, written if success else old)


def entry_of(record: Record | None) -> Entry | None:
    return None if record is None else record.entry


def _meta(meta: Meta | None) -> bytes:
    return b"" if meta is None else pack_meta(meta)


def _check(code: int) -> None:
    if code < 0:
        raise refused(code)


def refused(code: int) -> CacheError:
    if code == WRONG_TYPE:
        return CacheError("CACHE_WRONG_TYPE", "the key holds another type; nothing was changed")
    if code == OUT_OF_RANGE:
        return CacheError("CACHE_OUT_OF_RANGE", "the number or the index is out of range; nothing was changed")
    return CacheError("CACHE_TOO_LARGE", "what was to be stored, or read at once, is over the limit")


def lease_lost() -> CacheError:
    return CacheError("CACHE_LEASE_LOST", "someone else computes or has written the value, or it was deleted")


def unavailable(error: StoreError) -> CacheError:
    """What the store says, as an error of the cache."""
    if error.code == "STORE_WRONG_TYPE":
        return refused(WRONG_TYPE)
    return CacheError(
        "CACHE_STORE_UNAVAILABLE",
        f"the store does not do it: {error.message}",
        retryable=error.retryable,
        state_changed=error.state_changed,
        cause=error.code,
    )

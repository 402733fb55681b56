"""Keys and what a backup keeps of them, read page by page: the next page is under way while one is worked on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import msgspec

from mpreg.errors import StoreError
from mpreg.keyspace.tools.pace import Pace
from mpreg.store import Script, Store

RECORD = Script.load(__package__, "record.lua")
PAGE_KEYS = 500
"""So at most two pages are in memory, each of at most PAGE_KEYS * SMALL_BYTES."""
SMALL_BYTES = 64 * 1024
"""A larger value is fetched alone, after its page."""
ANY_BYTES = 1 << 50
REPEATS_MAX = 5
SEEN_KEYS_MAX = 1_000_000

Use = Literal["", "idle", "freq"]
Value = Literal["", "dump", "digest"]


class Seen(msgspec.Struct, frozen=True):
    """A key at one moment."""

    key: bytes
    type: str
    expires_at_ms: int | None
    left_ms: int | None
    """Until it expires."""
    size_bytes: int | None
    used: int | None
    """Seconds since it was last used, or how often it is, as asked for."""
    value: bytes
    """The payload of DUMP, or its SHA-1 in hex, as asked for."""


class Page(msgspec.Struct, frozen=True):
    found: list[Seen]
    gone: int
    """Keys that vanished after they were listed."""


class Fresh:
    """Lets each key through once: a scan may list a key again. It remembers the last million keys or so, in two
    generations; repetitions come soon after the first, or from a scan that starts anew."""

    def __init__(self, keys_max: int = SEEN_KEYS_MAX) -> None:
        self._half = keys_max // 2
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def only(self, keys: Sequence[bytes]) -> list[bytes]:
        out = []
        for key in keys:
            if key in self._young or key in self._old:
                continue
            self._young.add(key)
            out.append(key)
            if len(self._young) > self._half:
                self._old, self._young = self._young, set()
        return out


async def pages(
    store: Store,
    match: bytes,
    *,
    accepts: Callable[[bytes], bool] | None = None,
    value: Value = "dump",
    use: Use = "",
    keys_per_s: float | None = None,
) -> AsyncIterator[Page]:
    """All keys that match, each once."""
    loop = asyncio.get_running_loop()
    pace = Pace(keys_per_s, loop.time())
    fresh = Fresh()
    ahead: Asked | None = None
    try:
        async for listed in store.scan(match, count=PAGE_KEYS):
            keys = fresh.only([key for key in listed if accepts is None or accepts(key)])
            for at in range(0, len(keys), PAGE_KEYS):
                asked = Asked(store, keys[at : at + PAGE_KEYS], value, use)
                ready, ahead = ahead, asked
                if ready is not None:
                    yield await ready.page()
                await asyncio.sleep(pace.after(len(asked.keys), loop.time()))
        if ahead is not None:
            ready, ahead = ahead, None
            yield await ready.page()
    finally:
        if ahead is not None:
            ahead.drop()


async def read(store: Store, keys: Sequence[bytes], *, value: Value, use: Use = "") -> AsyncIterator[Page]:
    """These keys, in their order."""
    ahead: Asked | None = None
    try:
        for at in range(0, len(keys), PAGE_KEYS):
            ready, ahead = ahead, Asked(store, keys[at : at + PAGE_KEYS], value, use)
            if ready is not None:
                yield await ready.page()
        if ahead is not None:
            ready, ahead = ahead, None
            yield await ready.page()
    finally:
        if ahead is not None:
            ahead.drop()


class Asked:
    """Up to PAGE_KEYS keys whose records are under way."""

    def __init__(self, store: Store, keys: Sequence[bytes], value: Value, use: Use = "") -> None:
        assert len(keys) <= PAGE_KEYS
        self.keys = keys
        self._store = store
        self._value: Value = value
        self._use: Use = use
        self._futures = [self._ask(key, SMALL_BYTES) for key in keys]

    def _ask(self, key: bytes, bytes_max: int) -> asyncio.Future[Any]:
        return self._store.send_script(RECORD, [key], [self._use, self._value, bytes_max])

    async def page(self) -> Page:
        found: list[Seen] = []
        for key, reply in zip(self.keys, await self._answers(), strict=True):
            if self._value and reply is not None and reply[4] is None:
                reply = await self._ask(key, ANY_BYTES)
            if reply is not None:
                found.append(_seen(key, reply))
        return Page(found, len(self.keys) - len(found))

    async def _answers(self) -> list[Any]:
        """Reading may be repeated, so a connection that broke is no reason to give up: the store waits for the next."""
        for _ in range(REPEATS_MAX):
            await asyncio.wait(self._futures)
            lost = [n for n, future in enumerate(self._futures) if _was_lost(future)]
            if not lost:
                break
            for n in lost:
                self._futures[n] = self._ask(self.keys[n], SMALL_BYTES)
        return await replies(self._futures)

    def drop(self) -> None:
        for future in self._futures:
            future.cancel()


def _was_lost(future: asyncio.Future[Any]) -> bool:
    error = future.exception()
    return isinstance(error, StoreError) and error.code == "STORE_CONNECTION_LOST"


def _seen(key: bytes, reply: list[Any]) -> Seen:
    kind, at, size, used, value, left = reply
    return Seen(
        key=key,
        type=kind.decode(),
        expires_at_ms=at if at >= 0 else None,
        left_ms=left if left >= 0 else None,
        size_bytes=size if size >= 0 else None,
        used=used,
        value=value or b"",
    )


async def replies(futures: Sequence[asyncio.Future[Any]]) -> list[Any]:
    """All replies, or the first failure once nothing is under way any more."""
    if futures:
        await asyncio.wait(futures)
        for future in futures:
            future.exception()  # the first one is raised below; the others are not to be reported as forgotten
    return [future.result() for future in futures]

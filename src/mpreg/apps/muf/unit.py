"""A unit: asks others, answers them, keeps state, all on one store and under one name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Self, TypeVar

from mpreg.apps.muf import names, ttl
from mpreg.apps.muf.backend import Backend, Handle, Offer, handler_of
from mpreg.apps.muf.codecs import CodecLike, codec_of
from mpreg.apps.muf.frontend import Frontend
from mpreg.apps.muf.names import Name
from mpreg.apps.muf.request import Request
from mpreg.apps.muf.ttl import Ttls
from mpreg.errors import StoreError
from mpreg.store import Gap, Store, connect
from mpreg.store.key_events import KeyEvent

GRACE_S = 10.0
ALIVE_TTL_S = 15.0

F = TypeVar("F", bound=Callable[[Request], Any])


class _Default:
    def __repr__(self) -> str:
        return "the unit's own"


DEFAULT: Any = _Default()


class Unit:
    """Made by `Unit.connect`; it is its own async context manager.

    async with await Unit.connect("FRONTEND", "valkey://127.0.0.1") as unit:
        answer = await unit.request(b"hello")
    """

    def __init__(self, name: str, store: Store, ttls: Ttls, codec: CodecLike, *, owns_store: bool) -> None:
        self.name = names.check("unit", name)
        self.store = store
        self.ttls = ttls
        self._codec = codec_of(codec)
        self._owns_store = owns_store
        self._frontend = Frontend(store, name)
        self._backends: list[Backend] = []
        self._starting: list[asyncio.Task[None]] = []
        self._alive: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        name: str,
        url: str | Store,
        *,
        ttls: Ttls | None = None,
        codec: CodecLike = "bytes",
        alive: bool = False,
    ) -> Self:
        """Raises `ValueError` for a name that the grammar forbids, `StoreError` for a store that can't be reached.

        `alive` keeps `MUF/<name>/KEEP/alive` while the unit lives, for others to see.
        """
        names.check("unit", name)
        codec_of(codec)
        store = url if isinstance(url, Store) else await connect(url, name=f"muf-{names.ascii_of(name)}")
        unit = cls(name, store, ttls or Ttls(), codec, owns_store=store is not url)
        if alive:
            unit._alive = asyncio.create_task(unit._stay_alive(), name="muf alive")
        return unit

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace_s: float = GRACE_S) -> None:
        """Finish what was taken on, for `grace_s` seconds; calls that wait fail with `MufConnectionLost`."""
        if self._closed.is_set():
            return
        self._closed.set()
        for task in (*self._starting, *([self._alive] if self._alive is not None else [])):
            task.cancel()
            await asyncio.wait([task])
        await asyncio.gather(*(backend.stop(grace_s) for backend in self._backends))
        await self._frontend.close()
        if self._owns_store:
            await self.store.close()

    # --- asking -------------------------------------------------------------------------------------------------

    async def request(
        self,
        data: Any,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        id: str | None = None,
        target: str | None = None,
        codec: CodecLike | None = None,
    ) -> Any:
        """Ask, and wait for the answer.

        `ttl` is how long the request waits for a backend that starts on it, `timeout` how long this call waits for the
        answer. `target` goes before the id that is made here: `<target>.`, by which backends tell whom it is for; your
        own `id` is taken as it is, and is used once. Raises `MufTimeout`, `MufRemoteError`, `MufConnectionLost`,
        `MufIdInUse`, `MufBusy`; `ValueError` before any command is sent.
        """
        name, raw, ttl_s = self._prepare(data, ttl, id, target, codec)
        timeout_s = check_timeout(max(self.ttls.req, self.ttls.res) if timeout is None else timeout)
        answer = await self._frontend.call(name, raw, ttl_s, timeout_s, is_new=id is None)
        return (self._codec if codec is None else codec_of(codec)).decode(answer)

    async def send(
        self,
        data: Any,
        *,
        ttl: float | None = None,
        id: str | None = None,
        target: str | None = None,
        codec: CodecLike | None = None,
    ) -> str:
        """Ask without waiting; the id under which the answer will be."""
        name, raw, ttl_s = self._prepare(data, ttl, id, target, codec)
        await self._frontend.send(name, raw, ttl_s, is_new=id is None)
        return name.id

    def _prepare(
        self, data: Any, ttl_s: float | None, id: str | None, target: str | None, codec: CodecLike | None
    ) -> tuple[Name, bytes, float]:
        if id is not None and target is not None:
            raise ValueError("target: it is part of the id, so give one of the two")
        if target is not None:
            names.check("target", f"{target}.{'x' * names.ID_CHARS}")  # there must be room for the rest of the id
        chosen = names.new_id(target) if id is None else names.check("id", id)
        raw = (self._codec if codec is None else codec_of(codec)).encode(data)
        if not isinstance(raw, bytes):
            raise ValueError(f"codec: it made a {type(raw).__name__}, not bytes")
        return Name(self.name, "REQ", chosen), raw, ttl.check(self.ttls.req if ttl_s is None else ttl_s)

    # --- answering ----------------------------------------------------------------------------------------------

    def on_request(self, call: F | None = None, /, **offer: Any) -> Any:
        """Answer requests with what the function returns (nothing is an empty answer), or with ERR when it raises.

            @unit.on_request(group="WORKERS", concurrency=8)
            async def work(request: Request) -> bytes: ...

        The keywords are those of `Offer`. It begins in the background; `await unit.ready()` knows when it listens.
        """
        chosen = Offer(**offer)

        def register(call: F) -> F:
            backend = self._add(handler_of(call), chosen)
            self._starting.append(asyncio.create_task(backend.start(), name="muf backend"))
            return call

        return register if call is None else register(call)

    async def ready(self) -> None:
        """Until every backend of this unit listens; raises what keeps one from it."""
        await asyncio.gather(*self._starting)

    async def run(self) -> None:
        """Answer until the unit is closed."""
        await self.ready()
        await self._closed.wait()

    async def requests(self, **offer: Any) -> AsyncIterator[Request]:
        """Requests one by one, for a loop that answers each with `reply` or `fail`. At most `concurrency` of them are
        unanswered at a time; one that the loop leaves unanswered is nobody else's before its claim has run out."""
        arrived: asyncio.Queue[Request] = asyncio.Queue()

        async def hand_over(request: Request) -> None:
            arrived.put_nowait(request)
            await request.answered.wait()

        backend = self._add(hand_over, Offer(**offer))
        await backend.start()
        closed = asyncio.create_task(self._closed.wait())
        try:
            while True:
                getting = asyncio.create_task(arrived.get())
                await asyncio.wait([getting, closed], return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():
                    getting.cancel()
                    return
                yield getting.result()
        finally:
            closed.cancel()
            if not self._closed.is_set():
                self._backends.remove(backend)
                await backend.stop(0)

    def _add(self, handle: Handle, offer: Offer) -> Backend:
        backend = Backend(self.store, self.name, handle, offer, ttls=self.ttls, codec=self._codec)
        self._backends.append(backend)
        return backend

    # --- state --------------------------------------------------------------------------------------------------

    async def keep(self, name: str, data: Any, *, ttl: float | None = DEFAULT) -> None:
        """Set `MUF/<unit>/KEEP/<name>`; `ttl=None` keeps it for ever."""
        key = Name(self.name, "KEEP", names.check("name", name)).key
        seconds = self.ttls.keep if ttl is DEFAULT else ttl
        expiry = () if seconds is None else _expiry(seconds)
        await self.store.command(b"SET", key, self._codec.encode(data), *expiry)

    async def kept(self, name: str, *, unit: str | None = None) -> Any:
        """What a unit (this one, if none is named) keeps under a name; None when there is nothing."""
        raw = await self.store.command(b"GET", self._kept_key(name, unit))
        return None if raw is None else self._codec.decode(raw)

    async def watch(self, name: str, *, unit: str | None = None) -> AsyncIterator[Any]:
        """The value now, if there is one, and each one that is set from now on; of values that follow one another
        faster than they can be read, only the last. What expires is not told."""
        key = self._kept_key(name, unit)
        last: Any = DEFAULT
        async with self.store.keyspace_events(keys=[key]) as events:
            raw = await self.store.command(b"GET", key)
            if raw is not None:
                last = raw
                yield self._codec.decode(raw)
            async for item in events:
                is_set = isinstance(item, KeyEvent) and item.event == "set"
                if not is_set and not isinstance(item, Gap):
                    continue
                raw = await self.store.command(b"GET", key)
                if raw is None or (isinstance(item, Gap) and raw == last):
                    continue
                last = raw
                yield self._codec.decode(raw)

    def _kept_key(self, name: str, unit: str | None) -> bytes:
        return Name(self.name if unit is None else names.check("unit", unit), "KEEP", names.check("name", name)).key

    async def _stay_alive(self) -> None:
        key = Name(self.name, "KEEP", "alive").key
        while True:
            try:
                await self.store.command(b"SET", key, names.new_id(), *_expiry(ALIVE_TTL_S))
            except StoreError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(ALIVE_TTL_S / 3)


def _expiry(seconds: float) -> tuple[bytes, int]:
    return ttl.expiry(ttl.check(seconds))


def check_timeout(seconds: object) -> float:
    return ttl.check(seconds, "timeout")

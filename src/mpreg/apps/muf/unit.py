"""A unit: asks others, answers them, keeps state, all on one store and under one name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Self, TypeVar

from mpreg.apps.muf import names, ttl
from mpreg.apps.muf.backend import Backend
from mpreg.apps.muf.codecs import CodecLike, codec_of, encoded
from mpreg.apps.muf.errors import MufConnectionLost
from mpreg.apps.muf.frontend import Frontend
from mpreg.apps.muf.handed import Handed
from mpreg.apps.muf.handlers import Handle, handler_of, is_async
from mpreg.apps.muf.names import Name
from mpreg.apps.muf.offer import Offer
from mpreg.apps.muf.request import Request
from mpreg.apps.muf.state import State
from mpreg.apps.muf.statistics import Statistics
from mpreg.apps.muf.ttl import Ttls
from mpreg.rpc import Threads
from mpreg.store import Store, connect

GRACE_S: Final = 10.0
THREADS_MAX: Final = 1_000

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
        self._state = State(store, name, self._codec)
        self._backends: list[Backend] = []
        self._starting: list[asyncio.Task[None]] = []
        self._alive: asyncio.Task[None] | None = None
        self._threads: list[Threads] = []
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

        `alive` keeps `MUF/<name>/KEEP/alive` while the unit lives, for others to see: `is_alive`.
        """
        names.check("unit", name)
        codec_of(codec)
        store = url if isinstance(url, Store) else await connect(url, name=f"muf-{names.ascii_of(name)}")
        unit = cls(name, store, ttls or Ttls(), codec, owns_store=store is not url)
        if alive:
            try:
                await unit._state.say_alive()
            except BaseException:
                await unit.close(0)
                raise
            unit._alive = asyncio.create_task(unit._state.stay_alive(), name="muf alive")
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
        self._state.close()
        await self._frontend.close()
        for threads in self._threads:
            threads.close()
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
        answer = await self._frontend.call(name, raw, ttl_s, self._timeout_s(timeout), is_new=id is None)
        return self._decode(answer, codec)

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

    async def answer(self, id: str, *, timeout: float | None = None, codec: CodecLike | None = None) -> Any:
        """Wait for the answer to what was asked with `send`, in this process or another one; raises as `request`."""
        name = Name(self.name, "REQ", names.check("id", id))
        return self._decode(await self._frontend.wait(name, self._timeout_s(timeout)), codec)

    def _timeout_s(self, timeout: float | None) -> float:
        return max(self.ttls.req, self.ttls.res) if timeout is None else ttl.check(timeout, "timeout")

    def _decode(self, answer: bytes, codec: CodecLike | None) -> Any:
        return (self._codec if codec is None else codec_of(codec)).decode(answer)

    def _prepare(
        self, data: Any, ttl_s: float | None, id: str | None, target: str | None, codec: CodecLike | None
    ) -> tuple[Name, bytes, float]:
        if id is not None and target is not None:
            raise ValueError("target: it is part of the id, so give one of the two")
        if target is not None:
            names.check("target", f"{target}.{'x' * names.ID_CHARS}")  # there must be room for the rest of the id
        chosen = names.new_id(target) if id is None else names.check("id", id)
        raw = encoded(self._codec if codec is None else codec_of(codec), data)
        return Name(self.name, "REQ", chosen), raw, self.ttls.req if ttl_s is None else ttl.check(ttl_s)

    # --- answering ----------------------------------------------------------------------------------------------

    def on_request(self, call: F | None = None, /, **offer: Any) -> Any:
        """Answer requests with what the function returns (nothing is an empty answer), or with ERR when it raises.

            @unit.on_request(group="WORKERS", concurrency=8)
            async def work(request: Request) -> bytes: ...

        The keywords are those of `Offer`. It begins in the background; `await unit.ready()` knows when it listens.
        """
        chosen = Offer(**offer)

        def register(call: F) -> F:
            if not is_async(call) and chosen.concurrency > THREADS_MAX:
                raise ValueError(f"concurrency: at most {THREADS_MAX} for a sync function, not {chosen.concurrency}")
            threads = Threads(asyncio.get_running_loop(), chosen.concurrency)
            self._threads.append(threads)
            backend = self._add(handler_of(call, threads), chosen)
            self._starting.append(asyncio.create_task(backend.start(), name="muf backend"))
            return call

        return register if call is None else register(call)

    async def ready(self) -> None:
        """Until every backend of this unit listens; raises what keeps one from it."""
        await asyncio.gather(*self._starting)

    def look_again(self) -> None:
        """Look for requests that are there already, because `when` has other answers than it had."""
        for backend in self._backends:
            backend.look_again()

    async def run(self) -> None:
        """Answer until the unit is closed."""
        await self.ready()
        await self._closed.wait()

    async def requests(self, **offer: Any) -> AsyncIterator[Request]:
        """Requests one by one, for a loop that answers each with `reply` or `fail`. One is taken when the loop asks for
        it, and no more while `concurrency` of them are unanswered."""
        chosen = Offer(**offer)
        handed = Handed(chosen.concurrency)
        backend = self._add(handed.take, chosen, slots=0, stopping=handed.close)
        handed.take_on = backend.take_on
        try:
            await backend.start()
            while (request := await handed.next()) is not None:
                yield request
        finally:
            if not self._closed.is_set():
                self._backends.remove(backend)
                await backend.stop(0)

    def _add(
        self, handle: Handle, offer: Offer, *, slots: int | None = None, stopping: Callable[[], None] | None = None
    ) -> Backend:
        if self._closed.is_set():
            raise MufConnectionLost(self.name, "the unit is closed", state_changed=False)
        backend = Backend(
            self.store, self.name, handle, offer, ttls=self.ttls, codec=self._codec, slots=slots, stopping=stopping
        )
        self._backends.append(backend)
        return backend

    # --- state --------------------------------------------------------------------------------------------------

    async def keep(self, name: str, data: Any, *, ttl: float | None = DEFAULT) -> None:
        """Set `MUF/<unit>/KEEP/<name>`; `ttl=None` keeps it for ever."""
        await self._state.keep(name, data, self.ttls.keep if ttl is DEFAULT else ttl)

    async def kept(self, name: str, *, unit: str | None = None) -> Any:
        """What a unit (this one, if none is named) keeps under a name; None when there is nothing."""
        return await self._state.kept(name, unit)

    def watch(self, name: str, *, unit: str | None = None) -> AsyncIterator[Any]:
        """The value now, if there is one, and each one that is set from now on; of values that follow one another
        faster than they can be read, only the last. What expires is not told. It ends when the unit is closed."""
        return self._state.watch(name, unit)

    def progress(self, id: str, *, backend: str) -> AsyncIterator[Any]:
        """The notes that a backend leaves on a request of this unit (`Request.progress`), as `watch` tells them."""
        asked = Name(self.name, "REQ", names.check("id", id))
        return self.watch(names.progress(names.check("backend", backend), asked).id, unit=backend)

    async def is_alive(self, unit: str) -> bool:
        """Whether a unit that says so (`alive=True`) has said so in the last 15 seconds."""
        return await self._state.is_alive(unit)

    # --- how things are -----------------------------------------------------------------------------------------

    @property
    def statistics(self) -> Statistics:
        backends = self._backends
        events = [backend.events for backend in backends]
        if self._frontend.events is not None:
            events.append(self._frontend.events)
        return Statistics(
            calls=len(self._frontend),
            running=sum(map(len, backends)),
            waiting=sum(backend.waiting for backend in backends),
            handled=sum(backend.handled for backend in backends),
            dropped=sum(backend.dropped for backend in backends),
            ignored=sum(each.ignored for each in events),
            polls=any(each.polls for each in events),
        )

    def __repr__(self) -> str:
        return f"<Unit {self.name}{' closed' if self._closed.is_set() else ''}>"

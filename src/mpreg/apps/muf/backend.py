"""The answering side of a unit (R-M2 to R-M8): hears of requests, takes those that are for it and that it has room for.

An answer is written again until the store has it, for as long as it would live. A request that expired is not run: how
long it lives is asked before it is read, and its reader's own clock, which goes on while a process is stopped, is
looked at before it is handed over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import msgspec

from mpreg.apps.muf import names, ttl
from mpreg.apps.muf.claims import LEASE_S, Claims, Policy, Taken, remaining_s
from mpreg.apps.muf.codecs import BYTES, Codec
from mpreg.apps.muf.events import Events
from mpreg.apps.muf.intake import Intake
from mpreg.apps.muf.names import Name
from mpreg.apps.muf.request import Request
from mpreg.apps.muf.ttl import Ttls
from mpreg.errors import StoreError
from mpreg.store import Store
from mpreg.store.link import silence

log = logging.getLogger(__name__)

RETRY_S: Final = 0.2
ERROR_CHARS_MAX: Final = 10_000

Handle = Callable[[Request], Awaitable[None]]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests a backend takes, and how (R-M6, R-M7)."""

    issuers: Collection[str] | None = None
    """The units that it serves; None for all but its own."""
    target: str | None = None
    """It serves ids that begin with `<target>.`, and no others."""
    when: Callable[[Name], bool] | None = None
    """Any other condition on a request's name."""
    group: str | None = None
    claim: Policy | None = None
    """`once` by default for a backend that names a group, `off` for one that does not."""
    concurrency: int = 16
    lease_s: float = LEASE_S

    def __post_init__(self) -> None:
        for unit in self.issuers or ():
            names.check("issuer", unit)
        if self.target is not None:
            names.check("target", self.target)
        if self.group is not None:
            names.check("group", self.group)
        if self.claim not in (None, "off", "once", "lease"):
            raise ValueError(f"claim: one of off, once, lease, not {self.claim!r}")
        if self.claim in ("once", "lease") and self.group is None:
            raise ValueError("group: a claim belongs to a group, so name one")
        if isinstance(self.concurrency, bool) or not 1 <= self.concurrency <= 100_000:
            raise ValueError(f"concurrency: from 1 to 100000, not {self.concurrency!r}")
        ttl.check(self.lease_s, "lease_s")

    @property
    def policy(self) -> Policy:
        return self.claim or ("once" if self.group is not None else "off")

    def wants(self, request: Name, own: str) -> bool:
        return (
            request.status == "REQ"
            and request.unit != own
            and (self.issuers is None or request.unit in self.issuers)
            and (self.target is None or request.id.startswith(self.target + "."))
            and (self.when is None or self.when(request))
        )


class Backend:
    def __init__(
        self,
        store: Store,
        unit: str,
        handle: Handle,
        offer: Offer,
        *,
        ttls: Ttls,
        codec: Codec = BYTES,
        worker: str = "",
    ) -> None:
        self.handled = 0
        self._store = store
        self._unit = unit
        self._handle = handle
        self._offer = offer
        self._ttls = ttls
        self._codec = codec
        self._worker = worker or names.new_id(unit)
        self._claims = Claims(store, offer.group or unit, self._worker, offer.policy, offer.lease_s)
        self._intake = Intake(offer.concurrency, recheck_s=offer.lease_s if offer.policy == "lease" else None)
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], Request | None] = {}
        self._events = Events(store, unit, [names.glob(None, "REQ")], self._told, self._missed)
        self._scan = asyncio.Event()
        self._scanning: asyncio.Task[None] | None = None
        self._recheck: asyncio.TimerHandle | None = None
        self._stopping = False

    def __len__(self) -> int:
        """Requests that are being worked on."""
        return len(self._tasks)

    async def start(self) -> None:
        """Returns when requests are heard of."""
        self._scanning = self._loop.create_task(self._catch_up(), name="muf requests")
        await self._events.start()

    async def stop(self, grace_s: float) -> None:
        """Take nothing new, finish what runs for `grace_s` seconds; what is not done by then is answered with ERR."""
        self._stopping = True
        await self._events.close()
        if self._recheck is not None:
            self._recheck.cancel()
        if self._scanning is not None:
            self._scanning.cancel()
            await asyncio.wait([self._scanning])
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task, request in list(self._tasks.items()):
            task.cancel()
            if request is not None and not request.answered.is_set():
                await request.fail("shutting down")
        if self._tasks:
            await asyncio.wait(self._tasks)

    # --- hearing of requests ------------------------------------------------------------------------------------

    def _told(self, name: Name) -> None:
        if self._offer.wants(name, self._unit) and self._intake.event(name, self._loop.time()):
            self._begin(name)

    def _missed(self) -> None:
        self._scan.set()

    async def _catch_up(self) -> None:
        """R-M5: at the start and after each reconnect, what was missed; not the answered, nor (the claim sees to it)
        the claimed."""
        while True:
            await self._scan.wait()
            self._scan.clear()
            try:
                async for page in self._store.scan(match=names.glob(None, "REQ")):
                    await self._look_at([name for key in page if (name := names.parse(key)) is not None])
            except StoreError as error:
                if not error.retryable:
                    log.warning("Requests from before are not looked for: %s", error.message)
                    continue
                await asyncio.sleep(RETRY_S)
                self._scan.set()

    async def _look_at(self, found: list[Name]) -> None:
        wanted = [name for name in found if self._offer.wants(name, self._unit)]
        answers = [
            self._store.send(b"EXISTS", name.with_status(status).key) for name in wanted for status in ("RES", "ERR")
        ]
        there = await asyncio.gather(*answers)
        for at, name in enumerate(wanted):
            if not there[2 * at] and not there[2 * at + 1] and self._intake.found(name, self._loop.time()):
                self._begin(name)

    # --- taking them --------------------------------------------------------------------------------------------

    def _begin(self, name: Name) -> None:
        task = self._loop.create_task(self._take(name), name=f"muf {name.id}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A request could not be handled", exc_info=error)
        self._more()

    def _more(self) -> None:
        if self._stopping:
            return
        while (name := self._intake.next(self._loop.time())) is not None:
            self._begin(name)
        at = self._intake.recheck_at
        if at is not None and self._recheck is None:
            self._recheck = self._loop.call_at(at, self._look_again)

    def _look_again(self) -> None:
        self._recheck = None
        self._more()

    async def _take(self, name: Name) -> None:
        again = False
        while True:
            try:
                asked_at = time.monotonic()
                taken, raw = await self._claimed(name, again)
                break
            except StoreError as error:
                if not error.retryable:
                    log.warning("%s could not be taken: %s", name.key.decode(), error)
                    self._intake.done(name, self._loop.time())
                    return
            # Nothing was started, so it may be taken once more, for as long as it is there.
            again = True
            await asyncio.sleep(RETRY_S)
        if not taken.mine:
            self._elsewhere(name, taken)
            return
        alive_s = taken.alive_s
        if raw is None or (alive_s is not None and time.monotonic() >= asked_at + alive_s):
            self._intake.done(name, self._loop.time())
            return
        try:
            await self._run(Request(name, raw, self._codec, self._write, self._note), taken)
        finally:
            self._intake.done(name, self._loop.time(), alive_s or 0.0)

    def _elsewhere(self, name: Name, taken: Taken) -> None:
        if taken.alive_s == 0:
            self._intake.done(name, self._loop.time())
        else:
            self._intake.elsewhere(name, self._loop.time(), taken.alive_s or 0.0)

    async def _claimed(self, name: Name, again: bool) -> tuple[Taken, bytes | None]:
        """The claim, then the request; None when it is gone, or answered by whoever had it before."""
        if self._claims.policy == "off":
            reading = self._store.send(b"GET", name.key)  # leaves in the same write as the question for its life
            silence(reading)
            return Taken(True, await remaining_s(self._store, name)), await reading
        taken = await self._claims.take(name, again)
        if not taken.mine:
            return taken, None
        if self._claims.policy == "once":
            return taken, await self._store.send(b"GET", name.key)
        raw, res, err = await asyncio.gather(
            self._store.send(b"GET", name.key),
            *(self._store.send(b"EXISTS", name.with_status(status).key) for status in ("RES", "ERR")),
        )
        return taken, None if res or err else raw

    async def _run(self, request: Request, taken: Taken) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = request
        renewing = None
        if self._claims.policy == "lease":
            renewing = self._loop.create_task(self._renew(request, task), name=f"muf lease {request.id}")
        try:
            await self._handle(request)
            self.handled += 1
        except asyncio.CancelledError:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever the handler raises is the asker's to know
            log.info("%s failed: %s: %s", request.name.key.decode(), type(raised).__name__, raised)
            if not request.answered.is_set():
                await request.fail(described(raised))
        finally:
            if renewing is not None:
                renewing.cancel()
                await asyncio.wait([renewing])
        if request.answered.is_set():
            await self._claims.settle(request.name, taken.alive_s)

    async def _renew(self, request: Request, task: asyncio.Task[None]) -> None:
        until = time.monotonic() + self._claims.lease_s
        while True:
            await asyncio.sleep(self._claims.lease_s / 3)
            asked_at = time.monotonic()
            try:
                kept = await self._claims.keep(request.name)
            except StoreError as error:
                if error.retryable and time.monotonic() < until:
                    continue
                kept = False
            if not kept:
                log.warning("%s: the lease is lost; its handler is cancelled", request.name.key.decode())
                request.answered.set()
                task.cancel()
                return
            until = asked_at + self._claims.lease_s

    # --- writing ------------------------------------------------------------------------------------------------

    async def _write(self, name: Name, data: bytes, ttl_s: float | None) -> None:
        seconds = ttl.check(self._ttls.res if ttl_s is None else ttl_s)
        await self._set(name.key, data, seconds)

    async def _note(self, name: Name, data: bytes, ttl_s: float | None) -> None:
        await self._set(
            names.progress(self._unit, name).key, data, ttl.check(self._ttls.res if ttl_s is None else ttl_s)
        )

    async def _set(self, key: bytes, data: bytes, seconds: float) -> None:
        """Setting it twice does no harm, so a lost connection is no reason to lose an answer."""
        give_up = self._loop.time() + seconds
        while True:
            try:
                await self._store.send(b"SET", key, data, *ttl.expiry(seconds))
                return
            except StoreError as error:
                if not error.retryable or self._loop.time() >= give_up:
                    raise
            await asyncio.sleep(RETRY_S)


def described(raised: BaseException) -> str:
    """What an asker is told of an exception: its class and text, never a traceback."""
    try:
        text = str(raised)
    except Exception:  # noqa: BLE001 - the exception's own class may be broken
        text = ""
    return f"{type(raised).__name__}: {text}"[:ERROR_CHARS_MAX]


def handler_of(call: Callable[[Request], Any]) -> Handle:
    """A handler that returns what it answers with; a sync one runs in a thread."""

    is_async = asyncio.iscoroutinefunction(call) or asyncio.iscoroutinefunction(type(call).__call__)

    async def handle(request: Request) -> None:
        answer = await call(request) if is_async else await asyncio.to_thread(call, request)
        if not request.answered.is_set():
            await request.reply(b"" if answer is None else answer)

    return handle

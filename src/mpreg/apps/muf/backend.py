"""The answering side of a unit (R-M2 to R-M8): hears of requests, takes those that are for it and that it has room for.

An answer is written again until the store has it, for as long as it would live. A request that expired is not run: how
long it lives is asked before it is read, and its reader's own clock, which goes on while a process is stopped, is
looked at before it is handed over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from mpreg.apps.muf import names, ttl
from mpreg.apps.muf.claims import Asked, Claims, Taken
from mpreg.apps.muf.codecs import BYTES, Codec
from mpreg.apps.muf.events import Events
from mpreg.apps.muf.handlers import Handle, Late, described
from mpreg.apps.muf.intake import Intake
from mpreg.apps.muf.names import Name
from mpreg.apps.muf.offer import Offer
from mpreg.apps.muf.request import Request
from mpreg.apps.muf.ttl import Ttls
from mpreg.errors import StoreError
from mpreg.store import Store
from mpreg.store.link import silence

log = logging.getLogger(__name__)

RETRY_S: Final = 0.2
FAREWELL_S: Final = 2.0
"""How long a backend that stops tries to write ERR for what it could not finish."""
SCAN_SHARE: Final = 0.2
"""Looking for requests takes at most this share of the time, however many keys the store has."""


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
        slots: int | None = None,
        stopping: Callable[[], None] | None = None,
    ) -> None:
        """`slots` is how many requests it takes on before it is told another number; `stopping` is called once no more
        of them will come."""
        self.handled = 0
        self._store = store
        self._unit = unit
        self._handle = handle
        self._offer = offer
        self._ttls = ttls
        self._codec = codec
        self._worker = worker or names.new_id(unit)
        self._claims = Claims(store, offer.group or unit, self._worker, offer.policy, offer.lease_s)
        self._intake = Intake(
            offer.concurrency if slots is None else slots, recheck_s=offer.lease_s if offer.policy == "lease" else None
        )
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], Request | None] = {}
        self.events = Events(store, unit, self._told, self.look_again, patterns=[names.glob(None, "REQ")])
        self._scan = asyncio.Event()
        self._scanning: asyncio.Task[None] | None = None
        self._scan_refused = False
        self._recheck: asyncio.TimerHandle | None = None
        self._tell_stopping = stopping
        self._stopping = False

    def __len__(self) -> int:
        """Requests that are being worked on."""
        return len(self._tasks)

    @property
    def waiting(self) -> int:
        """Requests that it has heard of and has no room for."""
        return self._intake.waiting

    @property
    def dropped(self) -> int:
        """Requests that it has forgotten because too many were waiting."""
        return self._intake.dropped

    def take_on(self, slots: int) -> None:
        """How many requests to work on at a time from now on."""
        self._intake.slots = slots
        self._more()

    async def start(self) -> None:
        """Returns when requests are heard of."""
        self._scanning = self._loop.create_task(self._catch_up(), name="muf requests")
        await self.events.start()

    async def stop(self, grace_s: float) -> None:
        """Take nothing new, finish what runs for `grace_s` seconds; what is not done by then is answered with ERR."""
        self._stopping = True
        if self._tell_stopping is not None:
            self._tell_stopping()
        await self.events.close()
        if self._recheck is not None:
            self._recheck.cancel()
        if self._scanning is not None:
            self._scanning.cancel()
            await asyncio.wait([self._scanning])
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        unfinished = dict(self._tasks)
        for task in unfinished:
            task.cancel()
        said = [
            asyncio.create_task(request.fail("shutting down"))
            for request in unfinished.values()
            if request is not None and not request.answered
        ]
        if said:
            done, late = await asyncio.wait(said, timeout=FAREWELL_S)
            for task in late:
                task.cancel()
            for task in done:
                if (error := task.exception()) is not None:
                    log.warning("A request that is not finished could not be answered: %s", error)
        if unfinished:
            await asyncio.wait(unfinished)

    # --- hearing of requests ------------------------------------------------------------------------------------

    def _told(self, name: Name) -> None:
        if self._wants(name) and self._intake.event(name, self._loop.time()):
            self._begin(name)

    def _wants(self, name: Name) -> bool:
        try:
            return self._offer.wants(name, self._unit)
        except Exception:
            log.exception("The condition `when` failed for %s, which is left alone", name.key.decode())
            return False

    def look_again(self) -> None:
        """Requests may have been missed, or are wanted now that were not."""
        self._scan.set()

    async def _catch_up(self) -> None:
        """R-M5: at the start and after each reconnect, what was missed; not the answered, nor (the claim sees to it)
        the claimed."""
        while True:
            await self._scan.wait()
            self._scan.clear()
            began = self._loop.time()
            try:
                async for page in self._store.scan(match=names.glob(None, "REQ")):
                    await self._look_at([name for key in page if (name := names.parse(key)) is not None])
                self._scan_refused = False
            except StoreError as error:
                if error.retryable:
                    self._scan.set()
                    await asyncio.sleep(RETRY_S)
                    continue
                if not self._scan_refused:
                    self._scan_refused = True
                    log.warning("Requests that were missed are not looked for: %s", error.message)
            await asyncio.sleep((self._loop.time() - began) * (1 / SCAN_SHARE - 1))

    async def _look_at(self, found: list[Name]) -> None:
        now = self._loop.time()
        wanted = [name for name in found if self._wants(name) and self._intake.is_new(name, now)]
        asked = []
        for name in wanted:
            for status in ("RES", "ERR"):
                asked.append(self._store.send(b"EXISTS", name.with_status(status).key))
                silence(asked[-1])
        there = [await future for future in asked]
        for at, name in enumerate(wanted):
            if not there[2 * at] and not there[2 * at + 1] and self._intake.found(name, self._loop.time()):
                self._begin(name)

    # --- taking them --------------------------------------------------------------------------------------------

    def _begin(self, name: Name) -> None:
        asked_at = time.monotonic()
        try:
            asked = self._claims.begin(name)
        except StoreError:
            asked = None
        self._loop.call_soon(self._start_on, name, asked, asked_at)  # after what was asked has left

    def _start_on(self, name: Name, asked: Asked | None, asked_at: float) -> None:
        task = self._loop.create_task(self._take(name, asked, asked_at))
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

    async def _take(self, name: Name, asked: Asked | None, asked_at: float) -> None:
        again = False
        while True:
            try:
                if asked is None:
                    asked_at = time.monotonic()
                    asked = self._claims.begin(name)
                taken = await self._claims.take(name, asked, again)
                break
            except StoreError as error:
                if not error.retryable:
                    log.warning("%s could not be taken: %s", name.key.decode(), error)
                    self._intake.done(name, self._loop.time())
                    return
            # Nothing was started, so it may be taken once more, for as long as it is there.
            asked, again = None, True
            await asyncio.sleep(RETRY_S)
        if not taken.mine:
            self._elsewhere(name, taken)
            return
        if self._stopping:
            await self._claims.release(name)
            return
        expires_at = None if taken.alive_s is None else asked_at + taken.alive_s
        try:
            if taken.raw is not None:
                request = Request(name, taken.raw, self._codec, self._write, self._note, expires_at)
                if not request.expired:
                    await self._run(request, taken)
        finally:
            self._intake.done(name, self._loop.time(), taken.alive_s or 0.0)

    def _elsewhere(self, name: Name, taken: Taken) -> None:
        if taken.alive_s == 0:
            self._intake.done(name, self._loop.time())
        else:
            self._intake.elsewhere(name, self._loop.time(), taken.alive_s or 0.0)

    async def _run(self, request: Request, taken: Taken) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = request
        if self._claims.policy != "lease":
            await self._handled(request, task)
            return
        renewing = self._loop.create_task(self._renew(request, task), name=f"muf lease {request.id}")
        try:
            await self._handled(request, task)
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
        if request.answered:
            await self._claims.settle(request.name, taken.alive_s)

    async def _handled(self, request: Request, task: asyncio.Task[None]) -> None:
        try:
            await self._handle(request)
            self.handled += 1
        except Late:
            log.info("%s expired before it could begin", request.name.key.decode())
        except asyncio.CancelledError as raised:
            if task.cancelling():
                raise
            await self._failed(request, raised)  # something of the handler's own was cancelled
        except Exception as raised:  # noqa: BLE001 - whatever the handler raises is the asker's to know
            await self._failed(request, raised)

    async def _failed(self, request: Request, raised: BaseException) -> None:
        log.info("%s failed: %s: %s", request.name.key.decode(), type(raised).__name__, raised)
        if not request.answered:
            await request.fail(described(raised))

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
                request.drop()
                task.cancel()
                return
            until = asked_at + self._claims.lease_s

    # --- writing ------------------------------------------------------------------------------------------------

    async def _note(self, name: Name, data: bytes, ttl_s: float | None) -> None:
        await self._write(names.progress(self._unit, name).key, data, ttl_s)

    async def _write(self, key: bytes, data: bytes, ttl_s: float | None) -> None:
        """Setting it twice does no harm, so a lost connection is no reason to lose an answer."""
        seconds = self._ttls.res if ttl_s is None else ttl.check(ttl_s)
        give_up = self._loop.time() + seconds
        while True:
            try:
                await self._store.send(b"SET", key, data, *ttl.expiry(seconds))
                return
            except StoreError as error:
                if not error.retryable or self._loop.time() >= give_up:
                    raise
            await asyncio.sleep(RETRY_S)

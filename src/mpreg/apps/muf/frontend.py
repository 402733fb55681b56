"""The asking side of a unit (R-M4): many calls at once, each with its own answer.

A call's request is written only after the server has acknowledged that it will tell of answers. Then the answer is
read once, in the same write, and again at each event, after each reconnect, every second (every few where thousands
wait), and before the call gives up; so no single lost event loses an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from mpreg.apps.muf import names, ttl
from mpreg.apps.muf.answers import FEW, PAGE, Answers, Call, value_of
from mpreg.apps.muf.errors import MufBusy, MufConnectionLost, MufIdInUse, MufTimeout
from mpreg.apps.muf.events import Events
from mpreg.apps.muf.names import Name
from mpreg.deadlines import Deadlines
from mpreg.errors import MpregError, StoreError
from mpreg.store import Store

log = logging.getLogger(__name__)

CALLS_MAX: Final = 100_000
REREAD_S: Final = 1.0
REREADS_PER_S: Final = 2_000
"""Answers that wait for more than an event are rare: looking for them must not keep the store busy."""
RETRY_S: Final = 0.2


class Frontend:
    def __init__(self, store: Store, unit: str, calls_max: int = CALLS_MAX) -> None:
        self._store = store
        self._unit = unit
        self._calls_max = calls_max
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)
        self._calls: dict[str, Call] = {}
        self._events: Events | None = None
        self._starting: asyncio.Task[None] | None = None
        self._rereading: asyncio.Task[None] | None = None
        self._again = asyncio.Event()
        self._answers = Answers(store, self._again.set)
        self._closed = False

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def events(self) -> Events | None:
        """None until the first call."""
        return self._events

    async def call(self, name: Name, data: bytes, ttl_s: float, timeout_s: float, *, is_new: bool) -> bytes:
        """The bytes of RES. `is_new`: the id was made here, so nothing of it can be there already."""
        call = self._open(name, data, ttl_s)
        try:
            if is_new and self._events is not None:
                self._ask(call)
                self._loop.call_soon(self._limit, call, timeout_s)  # after the request has left
                return await call.answer
            self._limit(call, timeout_s)
            if self._events is None:
                await self._first(call, self._started())
            if not is_new:
                await self._first(call, self._refuse_answered(call))
            self._ask(call)
            return await call.answer
        finally:
            self._end(call)

    async def send(self, name: Name, data: bytes, ttl_s: float, *, is_new: bool) -> None:
        """Only ask."""
        self._refuse_closed(name)
        call = Call(name, data, ttl_s, self._loop)
        if not is_new:
            await self._refuse_answered(call)
        self._ask(call, only=True)
        await call.answer

    async def wait(self, name: Name, timeout_s: float) -> bytes:
        """The answer to what `send` asked, or anyone of this name."""
        call = self._open(name, b"", timeout_s)
        try:
            self._limit(call, timeout_s)
            if self._events is None:
                await self._first(call, self._started())
            call.asked = True
            self._answers.read_one(call)
            return await call.answer
        finally:
            self._end(call)

    def _open(self, name: Name, data: bytes, ttl_s: float) -> Call:
        self._refuse_closed(name)
        if len(self._calls) >= self._calls_max:
            raise MufBusy(self._calls_max)
        if name.id in self._calls:
            raise MufIdInUse(name.id)
        call = self._calls[name.id] = Call(name, data, ttl_s, self._loop)
        return call

    def _limit(self, call: Call, timeout_s: float) -> None:
        if not call.answer.done():
            call.deadline = self._deadlines.add(timeout_s, partial(self._expire, call, timeout_s))

    def _end(self, call: Call) -> None:
        if call.deadline is not None:
            call.deadline.cancel()
        del self._calls[call.id]

    def _refuse_closed(self, name: Name) -> None:
        if self._closed:
            raise MufConnectionLost(name.id, "the unit is closed", state_changed=False)

    async def close(self) -> None:
        self._closed = True
        self._fail_all("the unit was closed")
        for task in (self._starting, self._rereading):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._events is not None:
            await self._events.close()
        self._deadlines.close()

    # --- asking -------------------------------------------------------------------------------------------------

    async def _first(self, call: Call, step: Coroutine[Any, Any, None]) -> None:
        """What must be done before the request is written, unless the call has ended by then."""
        doing = self._loop.create_task(step)
        either: list[asyncio.Future[Any]] = [doing, call.answer]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
        else:
            doing.cancel()
            await call.answer

    async def _started(self) -> None:
        if self._starting is None:
            self._starting = self._loop.create_task(self._start())
        # Shared by all calls that wait for it: one that gives up must not end it for the others.
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        try:
            patterns = [names.glob(self._unit, "RES"), names.glob(self._unit, "ERR")]
            events = Events(self._store, self._unit, self._told, self._missed, patterns=patterns)
            await events.start()
            self._events = events
            self._rereading = self._loop.create_task(self._reread(), name="muf answers")
        finally:
            self._starting = None

    async def _refuse_answered(self, call: Call) -> None:
        """An answer to an earlier request of this id would be taken for the answer to this one."""
        while True:
            try:
                there = await asyncio.gather(*(self._store.command(b"GET", key) for key in (call.res, call.err)))
                break
            except StoreError as error:
                if not error.retryable or self._loop.time() >= call.give_up:
                    raise
            await asyncio.sleep(RETRY_S)  # nothing was asked yet, so a connection that breaks here harms nobody
        if there != [None, None]:
            raise MufIdInUse(call.id)

    def _ask(self, call: Call, only: bool = False) -> None:
        """Write the request; in the same write, look for answers once. `only`: its being written is the answer."""
        call.asked = True
        few = not only and len(self._calls) <= FEW
        if not only and not few:
            self._answers.read_soon(call)
        try:
            written = self._store.send(b"SET", call.req, call.data, b"NX", *ttl.expiry(call.ttl_s))
        except StoreError as error:
            call.fail(error)
            return
        if few:
            self._answers.read_now(call)
        written.add_done_callback(partial(self._on_written, call, only))

    def _on_written(self, call: Call, only: bool, done: asyncio.Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None:
            if done.result() is not None:
                if only:
                    call.succeed(b"")
            elif call.again:
                self._answers.get(call.req, partial(self._on_there, call, only))
            else:
                call.fail(MufIdInUse(call.id))
        elif isinstance(error, StoreError) and error.code == "STORE_CONNECTION_LOST":
            if self._loop.time() >= call.give_up:
                call.fail(MufConnectionLost(call.id, error.message))
            elif not call.answer.done():
                call.again = call.again or error.state_changed is not False
                self._ask(call, only)
        elif isinstance(error, MpregError):
            call.fail(error)

    def _on_there(self, call: Call, only: bool, done: asyncio.Future[Any]) -> None:
        """Is the request that is there what an earlier attempt wrote before its connection broke? One who may not
        read requests takes it to be."""
        error = None if done.cancelled() else done.exception()
        refused = isinstance(error, StoreError) and error.code == "STORE_NOT_PERMITTED"
        there = call.data if refused else value_of(call, done)
        if there is not None and there != call.data:
            call.fail(MufIdInUse(call.id))
        elif only:
            call.succeed(b"")

    def _expire(self, call: Call, timeout_s: float) -> None:
        """R-M4: before a call gives up it reads once more. What can't be read by then is no answer."""
        late = MufTimeout(call.id, timeout_s)
        self._answers.read_one(call, then=partial(call.fail, late))
        call.deadline = self._deadlines.add(REREAD_S, partial(call.fail, late))

    # --- answers ------------------------------------------------------------------------------------------------

    def _told(self, name: Name) -> None:
        call = self._calls.get(name.id)
        if call is None or not call.asked or call.answer.done():
            return
        if name.status == "RES":
            self._answers.read_result(call)
        elif name.status == "ERR":
            self._answers.read_one(call)

    def _missed(self) -> None:
        self._again.set()

    async def _reread(self) -> None:
        """Now and then, and at once when events may have been missed: all calls, in pages."""
        while True:
            pause_s = max(REREAD_S, len(self._calls) / REREADS_PER_S)
            try:
                async with asyncio.timeout(pause_s):
                    await self._again.wait()
            except TimeoutError:
                pass
            self._again.clear()
            await self._read_all(list(self._calls.values()))

    async def _read_all(self, calls: Iterable[Call]) -> None:
        waiting = iter(calls)
        while page := list(islice(waiting, PAGE)):
            self._answers.read(page)
            try:
                await self._store.command(b"GET", page[-1].err)  # the others have been read when this one is
            except StoreError as error:
                if error.code == "STORE_CLOSED":
                    self._fail_all("the store was closed")
                if error.retryable:
                    self._again.set()
                await asyncio.sleep(RETRY_S)
                return

    def _fail_all(self, why: str) -> None:
        for call in list(self._calls.values()):
            call.fail(MufConnectionLost(call.id, why))

"""The asking side of a unit (R-M4): many calls at once, each with its own answer.

A call's request is written only after the server has acknowledged that it will tell of answers. Then the answer is
read once, in the same write, and again at each event, after each reconnect, every second, and before the call gives up;
so no single lost event loses an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from mpreg.apps.muf import names, ttl
from mpreg.apps.muf.errors import MufBusy, MufConnectionLost, MufIdInUse, MufRemoteError, MufTimeout
from mpreg.apps.muf.events import Events
from mpreg.apps.muf.names import Name
from mpreg.errors import MpregError, StoreError
from mpreg.store import Store

log = logging.getLogger(__name__)

CALLS_MAX: Final = 100_000
REREAD_S: Final = 1.0
PAGE: Final = 500


class Call:
    """One request that waits for its answer."""

    __slots__ = ("answer", "err", "name", "res")

    def __init__(self, name: Name, answer: asyncio.Future[bytes]) -> None:
        self.name = name
        self.answer = answer
        self.res = name.with_status("RES").key
        self.err = name.with_status("ERR").key

    def succeed(self, data: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(data)

    def fail(self, error: MpregError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Frontend:
    def __init__(self, store: Store, unit: str, calls_max: int = CALLS_MAX) -> None:
        self._store = store
        self._unit = unit
        self._calls_max = calls_max
        self._loop = asyncio.get_running_loop()
        self._calls: dict[str, Call] = {}
        self._events: Events | None = None
        self._starting: asyncio.Task[None] | None = None
        self._rereading: asyncio.Task[None] | None = None
        self._again = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def polls(self) -> bool:
        return self._events is not None and self._events.polls

    async def call(self, name: Name, data: bytes, ttl_s: float, timeout_s: float, *, is_new: bool) -> bytes:
        """The bytes of RES. `is_new`: the id was made here, so nothing of it can be there already."""
        if self._closed:
            raise MufConnectionLost(name.id, "the unit is closed", state_changed=False)
        if len(self._calls) >= self._calls_max:
            raise MufBusy(self._calls_max)
        if name.id in self._calls:
            raise MufIdInUse(name.id)
        call = self._calls[name.id] = Call(name, self._loop.create_future())
        try:
            async with asyncio.timeout(timeout_s):
                await self._started()
                await self._set(call, data, ttl_s, is_new, self._read)
                return await call.answer
        except TimeoutError:
            return await self._last_look(call, timeout_s)
        finally:
            del self._calls[name.id]

    async def send(self, name: Name, data: bytes, ttl_s: float, *, is_new: bool) -> None:
        """Only ask."""
        await self._set(Call(name, self._loop.create_future()), data, ttl_s, is_new, None)

    async def close(self) -> None:
        self._closed = True
        for call in list(self._calls.values()):
            call.fail(MufConnectionLost(call.name.id, "the unit was closed"))
        for task in (self._starting, self._rereading):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._events is not None:
            await self._events.close()

    # --- asking -------------------------------------------------------------------------------------------------

    async def _started(self) -> None:
        if self._events is not None and self._starting is None:
            return
        if self._starting is None:
            self._starting = self._loop.create_task(self._start())
        # Shared by all calls that wait for it: one that gives up must not end it for the others.
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        try:
            patterns = [names.glob(self._unit, "RES"), names.glob(self._unit, "ERR")]
            events = Events(self._store, self._unit, patterns, self._told, self._missed)
            await events.start()
            self._events = events
            self._rereading = self._loop.create_task(self._reread(), name="muf answers")
        finally:
            self._starting = None

    async def _set(
        self, call: Call, data: bytes, ttl_s: float, is_new: bool, then: Callable[[Call], None] | None
    ) -> None:
        """A connection that breaks meanwhile is no reason to give up: NX makes the repetition harmless, as long as the
        first one can't have expired."""
        give_up = self._loop.time() + ttl_s
        again = False
        while True:
            try:
                if not is_new and not again and await self._is_answered(call):
                    raise MufIdInUse(call.name.id)
                written = self._store.send(b"SET", call.name.key, data, b"NX", *ttl.expiry(ttl_s))
                if then is not None:
                    then(call)  # leaves in the same write
                if await written is not None or (again and await self._is_ours(call, data)):
                    return
                raise MufIdInUse(call.name.id)
            except StoreError as error:
                if error.code != "STORE_CONNECTION_LOST":
                    raise
                if self._loop.time() >= give_up:
                    raise MufConnectionLost(call.name.id, error.message) from error
                again = again or error.state_changed is not False

    async def _is_ours(self, call: Call, data: bytes) -> bool:
        """The request that is there is what an earlier attempt wrote before its connection broke."""
        there = await self._store.send(b"GET", call.name.key)
        return there is None or there == data

    async def _is_answered(self, call: Call) -> bool:
        """An answer to an earlier request of this id would be taken for the answer to this one."""
        there = await asyncio.gather(*(self._store.send(b"GET", key) for key in (call.res, call.err)))
        return there != [None, None]

    async def _last_look(self, call: Call, timeout_s: float) -> bytes:
        """R-M4: before it gives up it reads once more. What can't be read by then is no answer."""
        if call.answer.cancelled():
            call.answer = self._loop.create_future()
        self._read(call)
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(REREAD_S):
                # Replies of one server come in order, so the reading is done when these have come.
                await asyncio.gather(self._store.send(b"GET", call.res), self._store.send(b"GET", call.err))
        if call.answer.done():
            return call.answer.result()
        raise MufTimeout(call.name.id, timeout_s)

    # --- answers ------------------------------------------------------------------------------------------------

    def _told(self, name: Name) -> None:
        call = self._calls.get(name.id)
        if call is None or call.answer.done():
            return
        if name.status == "RES":
            self._get(call.res, partial(self._on_res, call))
        elif name.status == "ERR":
            self._read(call)

    def _missed(self) -> None:
        self._again.set()

    async def _reread(self) -> None:
        """Every second, and at once when events may have been missed: all calls, in pages."""
        while True:
            try:
                async with asyncio.timeout(REREAD_S):
                    await self._again.wait()
            except TimeoutError:
                pass
            self._again.clear()
            await self._read_all(list(self._calls.values()))

    async def _read_all(self, calls: Iterable[Call]) -> None:
        waiting = iter(calls)
        while page := list(islice(waiting, PAGE)):
            for call in page:
                if not call.answer.done():
                    self._read(call)
            try:
                await self._store.send(b"GET", page[-1].err)
            except StoreError:
                return

    def _read(self, call: Call) -> None:
        """Look for both answers, each in its own slot of a cluster; what comes is settled in `_Reading`."""
        reading = _Reading(call)
        self._get(call.res, reading.on_res)
        self._get(call.err, reading.on_err)

    def _on_res(self, call: Call, done: asyncio.Future[Any]) -> None:
        data = _value(call, done)
        if data is not None:
            call.succeed(data)

    def _get(self, key: bytes, then: Any) -> None:
        try:
            self._store.send(b"GET", key).add_done_callback(then)
        except StoreError:
            self._again.set()  # no room at the moment


class _Reading:
    """R-M10: where both answers are there, RES wins; so ERR counts only when RES is known not to be there."""

    __slots__ = ("_call", "_err", "_res_is_known")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._res_is_known = False
        self._err: bytes | None = None

    def on_res(self, done: asyncio.Future[Any]) -> None:
        data = _value(self._call, done)
        if data is not None:
            if self._err is not None:
                self._log()
            self._call.succeed(data)
        self._res_is_known = not done.cancelled() and done.exception() is None
        self._settle()

    def on_err(self, done: asyncio.Future[Any]) -> None:
        self._err = _value(self._call, done)
        self._settle()

    def _settle(self) -> None:
        if self._err is None or not self._res_is_known:
            return
        if self._call.answer.done():
            self._log()
        else:
            self._call.fail(MufRemoteError(self._call.name.id, self._err))

    def _log(self) -> None:
        log.info("%s was answered by RES and by ERR; RES counts", self._call.name.key.decode())


def _value(call: Call, done: asyncio.Future[Any]) -> bytes | None:
    """None also when the store can't be asked now: it is asked again. What it forbids is the caller's to know."""
    if done.cancelled():
        return None
    error = done.exception()
    if error is None:
        value: bytes | None = done.result()
        return value
    if isinstance(error, MpregError) and not error.retryable and error.code != "STORE_CLOSED":
        call.fail(error)
    return None

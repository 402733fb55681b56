"""Reading what a frontend's calls wait for: RES and ERR, which count for how much (R-M10), and many of them at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from mpreg.apps.muf.errors import MufRemoteError
from mpreg.apps.muf.names import Name
from mpreg.deadlines import Deadline
from mpreg.errors import MpregError, StoreError
from mpreg.store import Store

log = logging.getLogger(__name__)

PAGE: Final = 500
FEW: Final = 4
"""Up to so many calls, each is looked after for itself."""


class Call:
    """One request that waits for its answer."""

    __slots__ = ("again", "answer", "asked", "data", "deadline", "err", "give_up", "id", "req", "res", "ttl_s")

    def __init__(self, name: Name, data: bytes, ttl_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.id = name.id
        self.data = data
        self.ttl_s = ttl_s
        self.answer: asyncio.Future[bytes] = loop.create_future()
        self.req, self.res, self.err = name.keys
        self.deadline: Deadline | None = None
        self.give_up = loop.time() + ttl_s
        """Until then a request that may have been written can't have expired, so NX makes writing it again harmless."""
        self.again = False
        self.asked = False

    def succeed(self, data: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(data)

    def fail(self, error: MpregError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Answers:
    """`busy` is called when the store has no room: something that was to be read has not been."""

    def __init__(self, store: Store, busy: Callable[[], None]) -> None:
        self._store = store
        self._busy = busy
        self._loop = asyncio.get_running_loop()
        # One command for many calls, but in a cluster each key has its own slot.
        self._together = store.url.kind != "cluster"
        self._new: list[Call] = []

    def read_soon(self, call: Call) -> None:
        """For a request that is about to be written: with all others of this turn of the loop, and in the same write
        as they are."""
        if not self._new:
            self._loop.call_soon(self._read_new)
        self._new.append(call)

    def read_now(self, call: Call) -> None:
        """For a request that has just been written, where few calls wait, so that there are no others of this turn."""
        self.read((call,))

    def _read_new(self) -> None:
        calls, self._new = self._new, []
        for at in range(0, len(calls), PAGE):
            self.read(calls[at : at + PAGE])

    def read(self, calls: Sequence[Call]) -> None:
        """Both answers of each, at most `PAGE` of them."""
        # One that has not asked yet must not take what is there from an earlier request of its id.
        calls = [call for call in calls if call.asked and not call.answer.done()]
        if not calls:
            return
        if not self._together:
            for call in calls:
                self.read_one(call)
            return
        keys = [b"MGET"]
        for call in calls:
            keys += (call.res, call.err)
        self._send(partial(self._on_many, calls), *keys)

    def read_one(self, call: Call, then: Callable[[], None] | None = None) -> None:
        """Both answers; `then` is called when neither is there."""
        reading = _Reading(call, then)
        self.get(call.res, reading.on_res)
        self.get(call.err, reading.on_err)

    def read_result(self, call: Call) -> None:
        """RES alone, of which an event has told."""
        try:
            self._store.send(b"GET", call.res).add_done_callback(partial(_on_res, call))
        except StoreError:
            self._busy()

    def get(self, key: bytes, then: Callable[[asyncio.Future[Any]], None]) -> None:
        self._send(then, b"GET", key)

    def _send(self, then: Callable[[asyncio.Future[Any]], None], *command: bytes) -> None:
        try:
            self._store.send(*command).add_done_callback(then)
        except StoreError:
            self._busy()

    def _on_many(self, calls: Sequence[Call], done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            values = done.result()
            for call, res, err in zip(calls, values[::2], values[1::2], strict=True):
                settle(call, res, err)
        elif isinstance(error, MpregError) and not error.retryable and error.code != "STORE_CLOSED":
            self._together = False  # who may GET may not always MGET
            self.read(calls)


def settle(call: Call, res: bytes | None, err: bytes | None) -> None:
    if res is not None:
        call.succeed(res)
        if err is not None:
            log.info("%s was answered by RES and by ERR; RES counts", call.req.decode())
    elif err is not None:
        call.fail(MufRemoteError(call.id, err))


def _on_res(call: Call, done: asyncio.Future[Any]) -> None:
    data = value_of(call, done)
    if data is not None:
        call.succeed(data)


class _Reading:
    """Of one call, two keys apart: ERR counts only when RES is known not to be there."""

    __slots__ = ("_call", "_err", "_left", "_res", "_res_is_known", "_then")

    def __init__(self, call: Call, then: Callable[[], None] | None) -> None:
        self._call = call
        self._then = then
        self._left = 2
        self._res_is_known = False
        self._res: bytes | None = None
        self._err: bytes | None = None

    def on_res(self, done: asyncio.Future[Any]) -> None:
        self._res = value_of(self._call, done)
        if self._res is not None:
            self._call.succeed(self._res)
        self._res_is_known = not done.cancelled() and done.exception() is None
        self._settle()

    def on_err(self, done: asyncio.Future[Any]) -> None:
        self._err = value_of(self._call, done)
        self._settle()

    def _settle(self) -> None:
        self._left -= 1
        if self._left:
            return
        if self._res_is_known:
            settle(self._call, self._res, self._err)
        if self._then is not None:
            self._then()


def value_of(call: Call, done: asyncio.Future[Any]) -> bytes | None:
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

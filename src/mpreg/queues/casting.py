"""Senders of broadcasts who wait for how they end: complete, or a quorum reached (R-Q1)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

import msgspec

from mpreg.errors import MpregError
from mpreg.queues.records import Cast
from mpreg.queues.state import Queue

EARLY_MAX: Final = 1_000


CAST: Final = b"c"


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What the scripts say on the queue's channel when a quorum is reached or a broadcast is over."""

    id: str
    subscribers: list[str]
    acknowledged: list[str]
    failed: list[str]
    required: int


class Casting:
    """Of one queue. What is heard before the sender knows its message's id is remembered for a while."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waiting: dict[str, asyncio.Future[Cast]] = {}
        self._early: OrderedDict[str, Cast] = OrderedDict()
        self.senders = 0

    def heard(self, data: bytes) -> None:
        if not self.senders:
            return
        told = msgspec.msgpack.decode(data, type=Told)
        cast = Cast(tuple(told.subscribers), tuple(told.acknowledged), tuple(told.failed), told.required)
        waiting = self._waiting.get(told.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(cast)
        else:
            self._early[told.id] = cast
            if len(self._early) > EARLY_MAX:
                self._early.popitem(last=False)

    async def outcome(self, message_id: str, wait_s: float) -> Cast | None:
        """How it stands when it is decided, or after so long. None: it was over and nobody heard how."""
        number = self._queue.number_of(message_id)
        early = self._early.pop(number, None)
        if early is not None:
            return early
        future: asyncio.Future[Cast] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(wait_s):
                return await future
        except TimeoutError:
            (cast,) = await self._queue.casts([message_id])
            return cast
        finally:
            del self._waiting[number]

    def fail(self, error: MpregError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    def enter(self) -> None:
        self.senders += 1

    def leave(self) -> None:
        self.senders -= 1
        if not self.senders:
            self._early.clear()

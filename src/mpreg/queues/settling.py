"""What becomes of messages in subscribers' hands: all that one queue's subscribers say in one turn of the event loop is
one call of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from mpreg.errors import MpregError, ResourceError
from mpreg.queues.parcels import Asked, asked_of
from mpreg.queues.records import Lease, Outcome
from mpreg.queues.state import Queue

UNDER_WAY_MAX: Final = 100_000

Answer = Callable[[list[Outcome] | MpregError], None]


def unheard(_: list[Outcome] | MpregError) -> None:
    """For what nobody waits for: a lease that could not be ended runs out."""


class Settling:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._leases: list[Lease] = []
        self._answers: list[tuple[int, Answer]] = []
        self._messages = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return self._messages

    def add(self, leases: list[Lease], answer: Answer) -> None:
        """Raises `RESOURCE_EXHAUSTED`."""
        if self._messages + len(leases) > UNDER_WAY_MAX:
            raise ResourceError(
                "RESOURCE_EXHAUSTED",
                f"{self._messages} acknowledgements to {self._queue.name!r} wait for the store",
                limit=UNDER_WAY_MAX,
            )
        if not leases:
            answer([])
            return
        if not self._leases:
            self._loop.call_soon(self._flush)
        self._leases += leases
        self._messages += len(leases)
        self._answers.append((len(leases), answer))
        self._idle.clear()

    async def drained(self) -> None:
        await self._idle.wait()

    def _flush(self) -> None:
        leases, self._leases = self._leases, []
        answers, self._answers = self._answers, []
        try:
            asked = asked_of(leases)
            future = self._queue.send_acknowledge(asked)
        except MpregError as error:
            self._answered(len(leases), answers, error)
        else:
            future.add_done_callback(lambda done: self._settled(asked, answers, done))

    def _settled(self, asked: Asked, answers: list[tuple[int, Answer]], done: asyncio.Future[list[Any] | int]) -> None:
        result: list[Outcome] | MpregError
        try:
            result = self._queue.outcomes(asked, done.result())
        except MpregError as error:
            result = error
        except asyncio.CancelledError:
            return
        self._answered(asked.count, answers, result)

    def _answered(self, count: int, answers: list[tuple[int, Answer]], result: list[Outcome] | MpregError) -> None:
        self._messages -= count
        if not self._messages:
            self._idle.set()
        at = 0
        for each, answer in answers:
            answer(result if isinstance(result, MpregError) else result[at : at + each])
            at += each

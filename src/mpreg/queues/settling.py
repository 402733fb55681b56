"""What becomes of messages in subscribers' hands: what one queue's subscribers say while a call of the store is under
way is the next call."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from mpreg.errors import MpregError, ProtocolError, ResourceError
from mpreg.queues.parcels import Asked, asked_of
from mpreg.queues.records import Lease, Outcome
from mpreg.queues.state import Queue

log = logging.getLogger(__name__)

UNDER_WAY_MAX: Final = 100_000
SETTLE_MAX: Final = 1_000
"""Messages in one call of the store."""

Answer = Callable[[list[Outcome] | MpregError], None]


def unheard(_: list[Outcome] | MpregError) -> None:
    """For what nobody waits for: a lease that could not be ended runs out."""


class Settling:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._leases: list[Lease] = []
        self._answers: deque[tuple[int, Answer]] = deque()
        self._messages = 0
        self._under_way = False
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
        if not self._leases and not self._under_way:
            self._loop.call_soon(self._flush)
        self._leases += leases
        self._messages += len(leases)
        self._answers.append((len(leases), answer))
        self._idle.clear()

    async def drained(self) -> None:
        await self._idle.wait()

    def _flush(self) -> None:
        answers = self._take()
        if not answers:
            return
        count = sum(each for each, _ in answers)
        asked = asked_of(self._leases[:count])
        del self._leases[:count]
        try:
            future = self._queue.send_acknowledge(asked)
        except MpregError as error:
            if self._answers:
                self._loop.call_soon(self._flush)
            self._answered(asked.count, answers, error)
        else:
            self._under_way = True
            future.add_done_callback(lambda done: self._settled(asked, answers, done))

    def _take(self) -> list[tuple[int, Answer]]:
        """As much as one call takes, but what was said at once."""
        taken: list[tuple[int, Answer]] = []
        count = 0
        while self._answers and (not taken or count + self._answers[0][0] <= SETTLE_MAX):
            taken.append(self._answers.popleft())
            count += taken[-1][0]
        return taken

    def _settled(self, asked: Asked, answers: list[tuple[int, Answer]], done: asyncio.Future[list[Any] | int]) -> None:
        self._under_way = False
        result: list[Outcome] | MpregError
        try:
            result = self._queue.outcomes(asked, done.result())
        except MpregError as error:
            result = error
        except asyncio.CancelledError:
            return
        except Exception:
            log.exception("%r: what became of messages can't be read", self._queue)
            result = ProtocolError("PROTOCOL_INTERNAL_ERROR", "The node failed; its log says why", state_changed=None)
        if self._leases:
            self._flush()
        self._answered(asked.count, answers, result)

    def _answered(self, count: int, answers: list[tuple[int, Answer]], result: list[Outcome] | MpregError) -> None:
        self._messages -= count
        if not self._messages:
            self._idle.set()
        at = 0
        for each, answer in answers:
            answer(result if isinstance(result, MpregError) else result[at : at + each])
            at += each

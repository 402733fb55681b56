"""From the store to this node's consumers of one queue: one claim at a time for all who have room.

It asks when there may be something new: the store said so, a consumer came, or has room again for what was left, a time
came that the store named, or nothing was heard for a while. What nobody takes any more goes back at once, uncounted.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mpreg.errors import MpregError, ProtocolError
from mpreg.queues.consumer import Consumer, Pull
from mpreg.queues.records import Batch, Cast, Claimed, Lease, Taker
from mpreg.queues.settling import Settling, unheard
from mpreg.queues.state import CLAIM_MAX, Queue

log = logging.getLogger(__name__)

STORE_GONE_PAUSE_S: Final = 0.5
PAUSE_S_MIN: Final = 0.002


class Delivery:
    def __init__(self, queue: Queue, settling: Settling, poll_s: float, deleted: Callable[[MpregError], None]) -> None:
        self.consumers: list[Consumer] = []
        self._queue = queue
        self._settling = settling
        self._poll_s = poll_s
        self._deleted = deleted
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._claiming = False
        self._again = False
        self._turn = 0
        """Where the next ones are whose turn it is to ask."""
        self._turns_left = 0
        """Claims until all have had a turn."""
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.wake()

    def remove(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if not self.consumers:
            self._disarm()

    def has_room(self, consumer: Consumer) -> None:
        """It can take more than before."""
        if consumer.left:
            self.wake()

    def wake(self) -> None:
        """There may be something new."""
        if self._claiming:
            self._again = True
        elif not self._scheduled and not self._stopped and self.consumers:
            self._scheduled = True
            self._loop.call_soon(self._claim)

    def stop(self) -> None:
        """Take nothing more from the store; who waits gets nothing."""
        self._stopped = True
        self._disarm()
        for consumer in [each for each in self.consumers if isinstance(each, Pull)]:
            self.remove(consumer)
            consumer.end(None)

    async def close(self) -> None:
        self.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def end_all(self, error: MpregError) -> None:
        consumers, self.consumers = self.consumers, []
        self._disarm()
        for consumer in consumers:
            consumer.end(error)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, after_s: float) -> None:
        self._disarm()
        if self.consumers and not self._stopped:
            self._timer = self._loop.call_later(max(after_s, PAUSE_S_MIN), self.wake)

    def _claim(self) -> None:
        self._scheduled = False
        if self._stopped or self._claiming:
            return
        now = self._loop.time()
        asking: list[tuple[Consumer, Taker]] = []
        for consumer in self.consumers:
            taker = consumer.taker(now)
            if taker is not None:
                asking.append((consumer, taker))
            else:
                consumer.left = True
        if not asking:
            room_at = min((consumer.room_at() for consumer in self.consumers), default=math.inf)
            self._arm(min(room_at - now, self._poll_s))
            return
        asking_now = len(asking)
        asking = self._share(asking)
        self._turns_left = (self._turns_left or math.ceil(asking_now / CLAIM_MAX)) - 1
        self._again = False
        try:
            future = self._queue.send_claim([taker for _, taker in asking])
        except MpregError as error:
            self._failed(error)
            return
        self._claiming = True
        # Not in this turn: what was sent before is answered first, so that its sender works at the same time.
        future.add_done_callback(lambda done: self._loop.call_soon(self._claimed, asking, done))

    def _share(self, asking: list[tuple[Consumer, Taker]]) -> list[tuple[Consumer, Taker]]:
        """Those with most room first. Who waits for what does not come must not keep others from asking: where they
        want more together than one claim brings, each asks for its share, and if they are too many, they take turns."""
        if len(asking) > CLAIM_MAX:
            self._turn = (self._turn + CLAIM_MAX) % len(asking)
            for consumer, _ in asking:
                consumer.left = True
            asking = (asking[self._turn :] + asking[: self._turn])[:CLAIM_MAX]
        if sum(taker.most for _, taker in asking) > CLAIM_MAX:
            most = CLAIM_MAX // len(asking)
            asking = [(one, msgspec.structs.replace(taker, most=min(taker.most, most))) for one, taker in asking]
        for consumer, _ in asking:
            consumer.left = False
        return sorted(asking, key=lambda pair: -pair[1].most)

    def _claimed(self, asking: list[tuple[Consumer, Taker]], done: asyncio.Future[list[Any] | int]) -> None:
        try:
            batch = self._queue.claimed([taker for _, taker in asking], done.result())
        except MpregError as error:
            self._claiming = False
            self._failed(error)
            return
        except asyncio.CancelledError:
            return
        except Exception:
            log.exception("%r: what was claimed can't be read", self._queue)
            self._claiming = False
            self._failed(ProtocolError("PROTOCOL_INTERNAL_ERROR", "The node failed; its log says why"))
            return
        if any(one.is_copy for one in batch.claimed):
            task = self._loop.create_task(self._hand_out_copies(asking, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._hand_out(asking, batch, {})

    async def _hand_out_copies(self, asking: list[tuple[Consumer, Taker]], batch: Batch) -> None:
        """A copy of a broadcast tells how it stands with the others."""
        ids = list(dict.fromkeys(one.message_ids[0] for one in batch.claimed if one.is_copy))
        casts: dict[str, Cast] = {}
        try:
            found = await self._queue.casts(ids)
            casts = {id_: cast for id_, cast in zip(ids, found, strict=True) if cast is not None}
        except MpregError as error:
            log.debug("How broadcasts stand can't be read: %s", error)
        self._hand_out(asking, batch, casts)

    def _hand_out(self, asking: list[tuple[Consumer, Taker]], batch: Batch, casts: dict[str, Cast]) -> None:
        self._claiming = False
        theirs: list[list[Claimed]] = [[] for _ in asking]
        for one in batch.claimed:
            theirs[one.taker].append(one)
        gone: list[Claimed] = []
        for (consumer, _), claimed in zip(asking, theirs, strict=True):
            if not claimed:
                if isinstance(consumer, Pull) and consumer.patience is None:
                    self.remove(consumer)
                    consumer.end(None)  # it does not wait
            elif consumer.session.closed or consumer not in self.consumers:
                gone += claimed
            else:
                if isinstance(consumer, Pull):
                    self.remove(consumer)
                consumer.take(claimed, casts, batch.now_ms)
        if gone:
            leases = [Lease(held, one.subscriber, "release") for one in gone for held in one.held]
            self._settling.add(leases, unheard)
        for (consumer, taker), claimed in zip(asking, theirs, strict=True):
            consumer.left = sum(len(one.held) for one in claimed) >= taker.most
        self._what_next(any(consumer.left for consumer, _ in asking), batch)

    def _what_next(self, is_more: bool, batch: Batch) -> None:
        """When to ask again."""
        if self._again or is_more or self._turns_left or 0 < batch.next_ms <= batch.now_ms:
            self._turns_left = 0 if self._again else self._turns_left
            self._again = False
            self.wake()
        elif batch.next_ms:
            self._arm(min((batch.next_ms - batch.now_ms) / 1000, self._poll_s))
        else:
            self._arm(self._poll_s)

    def _failed(self, error: MpregError) -> None:
        if error.code == "QUEUE_NOT_FOUND":
            self._deleted(error)
            return
        log.debug("%r can't be claimed from: %s", self._queue, error)
        for consumer in [each for each in self.consumers if isinstance(each, Pull)]:
            self.remove(consumer)
            consumer.end(error)
        self._arm(STORE_GONE_PAUSE_S)

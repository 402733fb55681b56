"""The receiver's half of queues: a stream of messages, whose leases are kept until they are settled.

What a lost connection left open goes on over the next one: the subscription under its own name, the leases by their
receipts, acknowledgements that were not answered once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from msgspec import UNSET, Raw

from mpreg.client.queue_message import Message, decode_payload
from mpreg.client.queue_settling import Settling
from mpreg.errors import MpregError, QueueError
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import to_exception
from mpreg.wire.queues import (
    MANY_MAX,
    Delivery,
    ExtendVisibilities,
    ExtendVisibilitiesPayload,
    ExtendVisibilitiesReply,
    Settlement,
    SubscribeQueue,
    SubscribeQueuePayload,
    SubscribeQueueReply,
    Subscriber,
    SubscriptionEnded,
    UnsubscribeQueue,
    UnsubscribeQueueReply,
)
from mpreg.wire.queues import Receipt as WireReceipt

if TYPE_CHECKING:
    from mpreg.client.queues import Queues

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEW_PAUSE_MIN_S: Final = 0.02
RENEWED_AFTER: Final = 1 / 3
"""Of its length: so a lease survives two renewals that fail."""
RENEWED_TOGETHER: Final = 0.1
"""Leases that are due within this share of their length are renewed in the same frame."""
CLOSE_S: Final = 5.0
_TAKEN: Final = Raw()
BUFFER_SPARE: Final = 10_000
"""Messages of fire and forget that may wait; past it the oldest go."""


class Receiving(Generic[T]):
    """Made by `Queue.receive`. Iterating it subscribes; leaving the loop unsubscribes."""

    def __init__(
        self,
        queues: Queues,
        queue_name: str,
        topics: tuple[str, ...],
        *,
        payload_type: Any,
        prefetch: int,
        visibility_s: float | None,
        subscriber_id: str | None,
        auto_ack: bool,
    ) -> None:
        self.queue_name = queue_name
        self.subscriber_id = subscriber_id or f"{queues.token}-{secrets.token_hex(4)}"
        self.invalid = 0
        """Messages that are dead letters now because their payload is not of the type that was asked for."""
        self._queues = queues
        self._topics = topics
        self._type = payload_type
        self._prefetch = prefetch
        self._visibility_s = visibility_s
        self._auto_ack = auto_ack
        self._owner = secrets.token_hex(8)
        self._loop = asyncio.get_running_loop()
        self._buffer: deque[Message[T]] = deque()
        self._held: dict[str, Message[T]] = {}
        """By receipt: received, not settled."""
        self._waiter: asyncio.Future[None] | None = None
        self._error: MpregError | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._leases_changed = asyncio.Event()
        self._next_renewal = math.inf
        self._settling = Settling(queues, queue_name, self.subscriber_id)
        self._is_begun = False

    # For the program.

    def __aiter__(self) -> AsyncIterator[Message[T]]:
        return self._messages()

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def begin(self) -> None:
        """Subscribe. Raises `QUEUE_NOT_FOUND`, `QUEUE_INVALID` and what else the node says."""
        if self._is_begun:
            return
        self._queues.add(self)
        try:
            await self.subscribe()
        except BaseException:
            self._queues.remove(self)
            raise
        self._is_begun = True
        self._renewing = self._loop.create_task(self._renew(), name="mpreg-queue-leases")

    async def close(self) -> None:
        """What was received and not acknowledged goes back: what the program has seen to be tried again."""
        if not self._is_begun:
            return
        self._is_begun = False
        await self.stop_taking()
        try:
            async with asyncio.timeout(CLOSE_S):
                for message in [one for one in self._held.values() if not one.is_settled]:
                    await _quietly(message.retry(after=0, reason="the receiver ended without acknowledging it"))
                await self._settling.drained()
        except TimeoutError:
            log.warning("%s: some messages come back only when their leases end", self)
        finally:
            if self._renewing is not None:
                self._renewing.cancel()
                await asyncio.wait([self._renewing])
            self._queues.remove(self)
            self._wake()

    async def stop_taking(self) -> None:
        """Unsubscribe, and give back what the program has not seen."""
        subscriber = Subscriber(self.queue_name, self.subscriber_id)
        asked = UnsubscribeQueue(payload=subscriber, u=self._queues.new_u())
        if self._error is None:
            await _quietly(self._queues.ask(asked, UnsubscribeQueueReply, timeout=CLOSE_S))
        unseen, self._buffer = self._buffer, deque()
        for message in unseen:
            if not message.is_settled:
                message.release().add_done_callback(_retrieved)

    async def work(self, handler: Callable[[Message[T]], Awaitable[None]], concurrency: int) -> None:
        """Until cancelled; then what runs is finished first."""
        room = asyncio.Semaphore(concurrency)
        running: set[asyncio.Task[None]] = set()
        await self.begin()
        try:
            while True:
                await room.acquire()
                message = await self.next()
                task = self._loop.create_task(_handle(handler, message))
                running.add(task)
                task.add_done_callback(running.discard)
                task.add_done_callback(lambda _: room.release())
        finally:
            try:
                await self.stop_taking()
                if running:
                    await asyncio.wait(running)
            finally:
                for task in running:
                    task.cancel()  # only if this was cancelled twice
                if running:
                    await asyncio.wait(running)
                await self.close()

    async def next(self) -> Message[T]:
        """The next message. Raises why none will come."""
        while True:
            while self._buffer:
                message = self._buffer.popleft()
                if not message.is_settled or not message.receipt:
                    return message
            if self._error is not None:
                raise self._error
            if self._waiter is None or self._waiter.done():
                self._waiter = self._loop.create_future()
            await asyncio.shield(self._waiter)

    def __repr__(self) -> str:
        return f"<Receiving {self.queue_name!r} as {self.subscriber_id}>"

    async def _messages(self) -> AsyncIterator[Message[T]]:
        await self.begin()
        try:
            while True:
                yield await self.next()
        finally:
            await self.close()

    # What the node sends.

    def take(self, deliveries: list[Delivery], encoding: Encoding) -> None:
        now = self._loop.time()
        for delivery in deliveries:
            receipt = "" if delivery.receipt is UNSET or self._auto_ack else delivery.receipt
            try:
                payload = decode_payload(delivery.message_payload, encoding, self._type)
            except QueueError as error:
                self._refuse(delivery, receipt, error)
                continue
            lease_s = 0.0 if delivery.visibility_timeout_seconds is UNSET else delivery.visibility_timeout_seconds
            delivery.message_payload = _TAKEN  # else all of the frame stays as long as this message
            message: Message[T] = Message(self, delivery, payload, receipt, lease_s)
            message.renew_at = now + RENEWED_AFTER * lease_s
            self._buffer.append(message)
            if receipt:
                self._held[receipt] = message
                if message.renew_at < self._next_renewal:
                    self._leases_changed.set()
        if len(self._buffer) > self._prefetch + BUFFER_SPARE:
            self._buffer.popleft()
        self._wake()

    def ended(self, told: SubscriptionEnded) -> None:
        self._error = to_exception(told.error)
        self._wake()

    async def subscribe(self) -> None:
        """At the node, for the first time or after a lost connection."""
        payload = SubscribeQueuePayload(
            queue_name=self.queue_name,
            subscriber_id=self.subscriber_id,
            topic_patterns=self._topics,
            auto_acknowledge=self._auto_ack,
            prefetch=self._prefetch,
            visibility_timeout_seconds=self._visibility_s or 0.0,
            batch=True,
            owner=self._owner,
            in_flight=len(self._held),
        )
        await self._queues.ask(SubscribeQueue(payload=payload, u=self._queues.new_u()), SubscribeQueueReply)

    async def reconnected(self) -> None:
        if self._is_begun:
            try:
                await self.subscribe()
            except QueueError as error:
                self._error = error
                self._wake()

    # What messages ask.

    def settle(self, message: Message[Any], settlement: Settlement) -> asyncio.Future[str]:
        message.is_settled = True
        self._held.pop(message.receipt, None)
        return self._settling.add(settlement, message.renew_at + (1 - RENEWED_AFTER) * message.lease_s)

    def _refuse(self, delivery: Delivery, receipt: str, error: QueueError) -> None:
        self.invalid += 1
        log.warning("%s: %s is not of the type %s: %s", self, delivery.message_id, self._type, error)
        if receipt:
            reason = f"it is not of the type that the receiver expects: {error.message}"[:500]
            given_up = Settlement(
                message_id=delivery.message_id, receipt=receipt, success=False, dead_letter=True, reason=reason
            )
            self._settling.add(given_up, self._loop.time() + 30).add_done_callback(_retrieved)

    # Leases.

    async def _renew(self) -> None:
        while True:
            self._leases_changed.clear()
            self._next_renewal = min((message.renew_at for message in self._held.values()), default=math.inf)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if self._next_renewal == math.inf else self._next_renewal):
                    await self._leases_changed.wait()
                continue  # one came that is due earlier
            now = self._loop.time()
            by_lease: dict[float, list[Message[T]]] = {}
            for message in self._held.values():
                if message.renew_at <= now + RENEWED_TOGETHER * message.lease_s:
                    by_lease.setdefault(message.lease_s, []).append(message)
            for lease_s, due in by_lease.items():
                for at in range(0, len(due), MANY_MAX):
                    await self._extend(lease_s, due[at : at + MANY_MAX])

    async def _extend(self, lease_s: float, messages: list[Message[T]]) -> None:
        payload = ExtendVisibilitiesPayload(
            queue_name=self.queue_name,
            subscriber_id=self.subscriber_id,
            visibility_timeout_seconds=lease_s,
            messages=[WireReceipt(message.message_id, message.receipt) for message in messages],
        )
        asked_at = self._loop.time()
        asked = ExtendVisibilities(payload=payload, u=self._queues.new_u())
        try:
            reply = await self._queues.ask(asked, ExtendVisibilitiesReply, timeout=max(lease_s / 2, 0.5))
        except MpregError as error:
            log.debug("%s: leases could not be renewed: %s", self, error)
            for message in messages:
                message.renew_at = self._loop.time() + max(lease_s / 10, RENEW_PAUSE_MIN_S)
            return
        for message, end in zip(messages, reply.payload.acknowledgment_timeouts, strict=True):
            if end:
                message.lease_until = end
                message.renew_at = asked_at + RENEWED_AFTER * lease_s
            else:
                message.is_settled = True  # it is somebody else's, or will be
                self._held.pop(message.receipt, None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def _handle(handler: Callable[[Message[T]], Awaitable[None]], message: Message[T]) -> None:
    try:
        async with message:
            await handler(message)
    except MpregError as error:
        if error.code != "QUEUE_STALE_RECEIPT":
            log.exception("The handler of %r failed", message)
        else:
            log.warning("%r was not in this program's hands any more", message)
    except Exception:
        log.exception("The handler of %r failed", message)


async def _quietly(work: Awaitable[Any]) -> None:
    try:
        await work
    except MpregError as error:
        log.debug("While closing: %s", error)


def _retrieved(done: asyncio.Future[Any]) -> None:
    """What nobody waits for must not be logged as forgotten: the lease runs out anyway."""
    if not done.cancelled():
        done.exception()

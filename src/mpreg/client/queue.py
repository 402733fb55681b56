"""A queue as a program uses it: send, receive, and look after it.

orders = client.queue("orders")
await orders.send({"sku": "tea"}, topic="order.new")

async for message in orders.receive(topics="order.*"):
    async with message:                  # acknowledged at its end; given back if it raises
        await handle(message.payload)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from msgspec import UNSET

from mpreg.client.queue_message import Message, Peeked, decode_payload, encode_payload
from mpreg.client.queue_receiving import Receiving
from mpreg.client.queue_sending import Receipt
from mpreg.errors import MpregError
from mpreg.wire.queues import (
    CreateQueue,
    CreateQueuePayload,
    CreateQueueReply,
    DeleteQueue,
    DeleteQueueReply,
    MessageSent,
    Peek,
    PeekPayload,
    PeekReply,
    PurgeQueue,
    PurgeQueueReply,
    QueueName,
    QueueStatistics,
    QueueStatisticsPayload,
    Redrive,
    RedrivePayload,
    RedriveReply,
    SendMessage,
    SendMessagePayload,
    SendMessageReply,
)

if TYPE_CHECKING:
    from mpreg.client.queues import Queues

T = TypeVar("T")

PREFETCH: Final = 32
REDRIVE_PART: Final = 500
ANSWER_S: Final = 10.0
"""On top of what a node is asked to wait."""


class Queue:
    """Made by `Client.queue`; it asks the node nothing until it is used."""

    def __init__(self, queues: Queues, name: str) -> None:
        self.name = name
        self._queues = queues

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    async def create(self, queue_type: str = "priority", **settings: Any) -> bool:
        """True if it was made, False if it was there with the same settings; else raises `QUEUE_EXISTS`.

        Settings are the fields of `create_queue`: `max_size`, `default_visibility_timeout_seconds`, `max_retries`,
        `message_ttl_seconds`, `enable_deduplication`, …
        """
        payload = CreateQueuePayload(queue_name=self.name, queue_type=queue_type, **settings)
        reply = await self._queues.ask(CreateQueue(payload=payload, u=self._queues.new_u()), CreateQueueReply)
        return reply.payload.created

    def send(
        self,
        payload: Any,
        *,
        topic: str = "message",
        priority: int = 0,
        group: str = "",
        delay: float = 0.0,
        guarantee: str = "at_least_once",
        dedup_id: str | None = None,
        ttl: float | None = None,
        visibility: float | None = None,
        ack_timeout: float | None = None,
        max_retries: int | None = None,
        required: int | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Awaitable[Receipt]:
        """Await it: then the store has the message. It is on its way even if nobody awaits it, and what is sent in one
        turn of the event loop travels together.

        An error with `state_changed` None says that it may or may not be stored. With a `dedup_id` such a send is
        repeated until the timeout, for it can't be stored twice. `visibility`, `ack_timeout`, `max_retries` and `ttl`
        of this message stand before those of the queue.
        """
        return self._queues.sending.send(
            self.name,
            payload,
            topic,
            guarantee,
            priority,
            group,
            delay,
            ttl,
            visibility,
            ack_timeout,
            max_retries,
            required,
            dedup_id,
            headers,
            timeout,
        )

    async def send_and_wait(
        self,
        payload: Any,
        *,
        wait: float,
        guarantee: str = "quorum",
        topic: str = "message",
        required: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> MessageSent:
        """Send a broadcast or quorum, and wait until all have acknowledged, or the quorum is reached, or `wait` seconds
        are over; then who has acknowledged and who has not."""
        asked = SendMessagePayload(
            queue_name=self.name,
            message_payload=encode_payload(payload, self._queues.encoding),
            topic=topic,
            delivery_guarantee=guarantee,
            required_acknowledgments=required,
            headers=dict(headers or {}),
            wait_seconds=wait,
        )
        message = SendMessage(payload=asked, u=self._queues.new_u())
        return (await self._queues.ask(message, SendMessageReply, timeout=wait + ANSWER_S)).payload

    async def send_many(
        self, payloads: Iterable[Any], *, topic: str = "message", guarantee: str = "at_least_once", **how: Any
    ) -> list[Receipt | MpregError]:
        """In this order; for each what became of it. `how` is as in `send`, the same for all."""
        sent = [self.send(payload, topic=topic, guarantee=guarantee, **how) for payload in payloads]
        return [await _caught(one) for one in sent]

    @overload
    def receive(
        self,
        topics: str | Iterable[str] = ...,
        *,
        payload_type: type[T],
        prefetch: int = ...,
        visibility: float | None = ...,
        subscriber_id: str | None = ...,
        auto_ack: bool = ...,
    ) -> Receiving[T]: ...

    @overload
    def receive(
        self,
        topics: str | Iterable[str] = ...,
        *,
        payload_type: Any = ...,
        prefetch: int = ...,
        visibility: float | None = ...,
        subscriber_id: str | None = ...,
        auto_ack: bool = ...,
    ) -> Receiving[Any]: ...

    def receive(
        self,
        topics: str | Iterable[str] = "#",
        *,
        payload_type: Any = Any,
        prefetch: int = PREFETCH,
        visibility: float | None = None,
        subscriber_id: str | None = None,
        auto_ack: bool = False,
    ) -> Receiving[Any]:
        """Messages, for `async for`. Each has to be acknowledged: `async with message`, or `message.ack()`.

        Up to `prefetch` are with this program at a time; their leases are renewed by themselves until they are
        acknowledged. When the loop is left, by an exception too, what was received and not acknowledged goes back. A
        message whose payload is not of `payload_type` becomes a dead letter, with the reason.
        """
        return Receiving(
            self._queues,
            self.name,
            (topics,) if isinstance(topics, str) else tuple(topics),
            payload_type=payload_type,
            prefetch=prefetch,
            visibility_s=visibility,
            subscriber_id=subscriber_id,
            auto_ack=auto_ack,
        )

    async def work(
        self,
        handler: Callable[[Message[Any]], Awaitable[None]],
        topics: str | Iterable[str] = "#",
        *,
        concurrency: int = 8,
        payload_type: Any = Any,
        visibility: float | None = None,
    ) -> None:
        """Run `handler` for each message, several at a time, until cancelled; then those that run are finished. A
        message is acknowledged when its handler returns, and tried again later if it raises."""
        receiving = self.receive(topics, payload_type=payload_type, prefetch=2 * concurrency, visibility=visibility)
        await receiving.work(handler, concurrency)

    async def stats(self) -> QueueStatisticsPayload:
        payload = QueueStatisticsPayload(queue_name=self.name)
        asked = QueueStatistics(payload=payload, u=self._queues.new_u())
        return (await self._queues.ask(asked, QueueStatistics)).payload

    async def peek(self, limit: int = 10, *, topics: str = "#", payload_type: Any = Any) -> list[Peeked]:
        """The next messages, without taking them; of `<name>.dlq`, with `why` they are there."""
        payload = PeekPayload(queue_name=self.name, max_messages=limit, topic_pattern=topics)
        asked = Peek(payload=payload, u=self._queues.new_u())
        reply = await self._queues.ask(asked, PeekReply)
        return [
            Peeked(
                message_id=one.message_id,
                topic=one.topic,
                payload=decode_payload(one.message_payload, self._queues.encoding, payload_type),
                priority=one.priority,
                retry_count=one.retry_count,
                headers=one.headers,
                sent_at=one.sent_at,
                why=None if one.why is UNSET else one.why,
            )
            for one in reply.payload.messages
        ]

    async def purge(self) -> int:
        """Remove all messages, those in flight too; how many they were."""
        asked = PurgeQueue(payload=QueueName(self.name), u=self._queues.new_u())
        return (await self._queues.ask(asked, PurgeQueueReply)).payload.removed

    async def delete(self) -> int:
        """The queue, its messages and its dead letters."""
        asked = DeleteQueue(payload=QueueName(self.name), u=self._queues.new_u())
        return (await self._queues.ask(asked, DeleteQueueReply)).payload.removed

    async def redrive(self, limit: int | None = None) -> int:
        """Dead letters back into this queue, as new messages; how many went. All of them without a limit, as far as
        there is room."""
        total = 0
        async for redriven, _ in self.redriving(limit):
            total += redriven
        return total

    async def redriving(self, limit: int | None = None) -> AsyncIterator[tuple[int, int]]:
        """As `redrive`, part by part: how many went, how many are left."""
        while limit is None or limit > 0:
            most = REDRIVE_PART if limit is None else min(limit, REDRIVE_PART)
            asked = Redrive(payload=RedrivePayload(queue_name=self.name, max_messages=most), u=self._queues.new_u())
            done = (await self._queues.ask(asked, RedriveReply)).payload
            if limit is not None:
                limit -= done.redriven
            if done.redriven:
                yield done.redriven, done.left
            if not done.left or not done.redriven:
                return


async def _caught(sent: Awaitable[Receipt]) -> Receipt | MpregError:
    try:
        return await sent
    except MpregError as error:
        return error

"""Requests that concern a queue as a whole: each from its request to its reply."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw

from mpreg.errors import MpregError, QueueError
from mpreg.queues.keys import NAMES
from mpreg.queues.names import DEAD, check_pattern
from mpreg.queues.records import Peeked, Statistics
from mpreg.queues.requests import settings_out
from mpreg.queues.settings import number
from mpreg.queues.state import CLAIM_MAX, REDRIVE_MAX, Queue
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.queues import (
    DeleteQueue,
    DeleteQueueReply,
    ListedQueue,
    ListedQueues,
    ListQueues,
    ListQueuesReply,
    Peek,
    PeekedMessage,
    PeekedMessages,
    PeekReply,
    PurgeQueue,
    PurgeQueueReply,
    QueueStatistics,
    QueueStatisticsPayload,
    Redrive,
    Redriven,
    RedriveReply,
    Removed,
)

if TYPE_CHECKING:
    from mpreg.store import Store

LIST_MAX: Final = 1_000


async def delete(queue: Queue, request: DeleteQueue, _: Encoding) -> DeleteQueueReply:
    return DeleteQueueReply(payload=Removed(queue.name, await queue.delete()), u=request.u)


async def purge(queue: Queue, request: PurgeQueue, _: Encoding) -> PurgeQueueReply:
    return PurgeQueueReply(payload=Removed(queue.name, await queue.purge()), u=request.u)


async def redrive(queue: Queue, request: Redrive, _: Encoding) -> RedriveReply:
    most = number("max_messages", request.payload.max_messages, 1, REDRIVE_MAX)
    return RedriveReply(payload=Redriven(queue.name, *await queue.redrive(most)), u=request.u)


async def peek(queue: Queue, request: Peek, encoding: Encoding) -> PeekReply:
    most = number("max_messages", request.payload.max_messages, 1, CLAIM_MAX)
    pattern = check_pattern(request.payload.topic_pattern)
    found = await queue.peek(most, patterns=() if pattern == "#" else (pattern,))
    return PeekReply(payload=PeekedMessages([_peeked(one, encoding) for one in found]), u=request.u)


def _peeked(one: Peeked, encoding: Encoding) -> PeekedMessage:
    message = one.messages
    payload = Raw(message.payloads[one.place])
    if message.encoding != encoding.value:
        try:
            payload = codec.transcode(payload, Encoding(message.encoding), encoding)
        except MpregError:  # it has no form in this encoding; it is looked at all the same
            payload = codec.NULL[encoding]
    return PeekedMessage(
        message_id=one.message_id,
        topic=message.topic,
        message_payload=payload,
        priority=message.priority,
        retry_count=one.deliveries,
        headers=message.headers,
        sent_at=message.sent_at,
        why=UNSET if one.why is None else one.why,
    )


async def statistics(queue: Queue, request: QueueStatistics, _: Encoding) -> QueueStatistics:
    stats = await queue.statistics()
    return QueueStatistics(payload=_payload(queue, stats, await _dead_letters(queue)), u=request.u)


def _payload(queue: Queue, stats: Statistics, dead: int) -> QueueStatisticsPayload:
    counters = stats.counters
    done, failed, expired = counters["acknowledged"], counters["failed"], counters["expired"]
    ended = done + failed + expired
    return QueueStatisticsPayload(
        queue_name=queue.name,
        messages_sent=counters["sent"],
        messages_received=counters["received"],
        messages_acknowledged=done,
        messages_failed=failed,
        messages_expired=expired,
        messages_requeued=counters["requeued"],
        messages_purged=counters["purged"],
        messages_redriven=counters["redriven"],
        messages_forgotten=counters["fired"],
        current_queue_size=stats.ready + stats.delayed,
        current_in_flight_count=stats.in_flight,
        current_delayed_count=stats.delayed,
        dead_letters=dead,
        subscribers=stats.subscribers,
        success_rate=done / ended if ended else 1.0,
        average_processing_time_seconds=counters["processing_ms"] / done / 1000 if done else 0.0,
        settings=settings_out(queue.name, stats.settings),
    )


async def _dead_letters(queue: Queue) -> int:
    if queue.name.endswith(DEAD):
        return 0
    return await queue.dead_letters()


async def listed(store: Store, request: ListQueues) -> ListQueuesReply:
    asked = request.payload
    number("limit", asked.limit, 1, LIST_MAX)
    names: list[str] = []
    async for some in NAMES.at().pages(store):
        names += (name for name in some if name.startswith(asked.prefix) and name > asked.after)
    names = sorted(set(names))
    page = names[: asked.limit]
    found = await asyncio.gather(*(_listed(Queue(store, name)) for name in page))
    queues = [one for one in found if one is not None]
    return ListQueuesReply(payload=ListedQueues(queues, len(names) > len(page)), u=request.u)


async def _listed(queue: Queue) -> ListedQueue | None:
    try:
        stats: Any = await queue.statistics()
    except QueueError:
        return None  # deleted meanwhile
    return ListedQueue(
        queue_name=queue.name,
        queue_type=stats.settings.queue_type,
        current_queue_size=stats.ready + stats.delayed,
        current_in_flight_count=stats.in_flight,
        dead_letters=await queue.dead_letters(),
    )

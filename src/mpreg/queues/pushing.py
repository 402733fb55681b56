"""From a claimed message to what its consumer reads, in the consumer's encoding."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from mpreg.errors import MpregError
from mpreg.queues.records import Cast, Claimed
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.message import Message
from mpreg.wire.queues import (
    BroadcastMessage,
    Delivery,
    MessageDelivered,
    MessagePendingAck,
    QuorumMessage,
)

_MESSAGES: Final[dict[str, type[MessagePendingAck] | type[BroadcastMessage] | type[QuorumMessage]]] = {
    "at_least_once": MessagePendingAck,
    "broadcast": BroadcastMessage,
    "quorum": QuorumMessage,
}
FIRED: Final = b"f"


class Fired(msgspec.Struct, frozen=True, array_like=True):
    """Fire and forget, as it travels on a queue's channel; behind it comes the payload."""

    topic: str
    encoding: str
    priority: int
    sent_at: float
    headers: dict[str, str]
    payload: bytes


def delivery_of(queue: str, claimed: Claimed, cast: Cast | None, now_ms: int, encoding: Encoding) -> Delivery:
    """Raises if the payload has no form in this encoding."""
    message = claimed.message
    delivery = Delivery(
        message_id=claimed.message_id,
        topic=message.topic,
        message_payload=_payload(message.payload, message.encoding, encoding),
        delivery_guarantee=message.delivery_guarantee,
        delivered_to=(claimed.subscriber,),
        queue_name=queue,
        receipt=claimed.receipt,
        acknowledgment_timeout=claimed.lease_until_ms / 1000,
        visibility_timeout_seconds=(claimed.lease_until_ms - now_ms) / 1000,
        retry_count=claimed.deliveries - 1,
        max_retries=message.max_retries,
        headers=message.headers,
        priority=message.priority,
        sent_at=message.sent_at,
    )
    if cast is not None:
        delivery.delivered_to = cast.subscribers
        delivery.acknowledged_by = cast.acknowledged
        if message.delivery_guarantee == "broadcast":
            delivery.pending_acknowledgments = cast.pending
        else:
            delivery.required_acknowledgments = cast.required
            delivery.quorum_reached = cast.reached
    return delivery


def deliveries_of(
    queue: str, claimed: Sequence[Claimed], casts: dict[str, Cast], now_ms: int, encoding: Encoding
) -> tuple[list[Delivery], list[tuple[Claimed, str]]]:
    """And those that can't be said in this encoding, with why."""
    found: list[Delivery] = []
    failed: list[tuple[Claimed, str]] = []
    for one in claimed:
        try:
            found.append(delivery_of(queue, one, casts.get(one.message_id), now_ms, encoding))
        except MpregError as error:
            failed.append((one, f"the payload has no form in {encoding.value}: {error.message}"[:300]))
    return found, failed


def push_of(delivery: Delivery) -> Message:
    return _MESSAGES[delivery.delivery_guarantee](payload=delivery)


def fired_delivery(
    queue: str, message_id: str, name: str, subscribers: list[str], fired: Fired, encoding: Encoding
) -> MessageDelivered:
    return MessageDelivered(
        payload=Delivery(
            message_id=message_id,
            topic=fired.topic,
            message_payload=_payload(fired.payload, fired.encoding, encoding),
            delivery_guarantee="fire_and_forget",
            delivered_to=tuple(subscribers),
            queue_name=queue,
            headers=fired.headers or UNSET,
            priority=fired.priority,
            sent_at=fired.sent_at,
            delivery_timestamp=time.time(),
            subscriber_id=name,
        )
    )


def _payload(payload: bytes, source: str, target: Encoding) -> Raw:
    raw = Raw(payload)
    return raw if source == target.value else codec.transcode(raw, Encoding(source), target)

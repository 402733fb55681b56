"""From a claimed message to what its consumer reads, in the consumer's encoding."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from mpreg.errors import MpregError
from mpreg.queues.records import Cast, Claimed, Lease
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


def deliveries_of(
    queue: str, claimed: Sequence[Claimed], casts: dict[str, Cast], now_ms: int, encoding: Encoding
) -> tuple[list[Delivery], list[tuple[str, Lease]]]:
    """And the ids of those that can't be said in this encoding, with what gives them up."""
    found: list[Delivery] = []
    failed: list[tuple[str, Lease]] = []
    for one in claimed:
        messages = one.messages
        to = (one.subscriber,)
        visible_s = (one.lease_until_ms - now_ms) / 1000
        is_foreign = messages.encoding != encoding.value
        for message_id, held, stored in zip(one.message_ids, one.held, messages.payloads, strict=True):
            try:
                payload = _payload(stored, messages.encoding, encoding) if is_foreign else Raw(stored)
            except MpregError as error:
                why = f"the payload has no form in {encoding.value}: {error.message}"[:300]
                failed.append((message_id, Lease(held, one.subscriber, "dead_letter", 0, why)))
                continue
            delivery = Delivery(
                message_id=message_id,
                topic=messages.topic,
                message_payload=payload,
                delivery_guarantee=messages.delivery_guarantee,
                delivered_to=to,
                queue_name=queue,
                receipt=held.receipt,
                acknowledgment_timeout=one.lease_until_ms / 1000,
                visibility_timeout_seconds=visible_s,
                retry_count=one.deliveries - 1,
                max_retries=messages.max_retries,
                headers=messages.headers,
                priority=messages.priority,
                sent_at=messages.sent_at,
            )
            cast = casts.get(message_id)
            if cast is not None:
                _say_how_it_stands(delivery, cast)
            found.append(delivery)
    return found, failed


def _say_how_it_stands(delivery: Delivery, cast: Cast) -> None:
    delivery.delivered_to = cast.subscribers
    delivery.acknowledged_by = cast.acknowledged
    if delivery.delivery_guarantee == "broadcast":
        delivery.pending_acknowledgments = cast.pending
    else:
        delivery.required_acknowledgments = cast.required
        delivery.quorum_reached = cast.reached


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

"""Messages of queues. A payload stays raw bytes, in the encoding of its message, all the way to who reads it.

Beside each message of one there is one of many (`send_messages`, `acknowledge_messages`, …): what a client has in
one turn travels in one frame, and each of the many is answered for itself.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mpreg.wire.error import ErrorBody
from mpreg.wire.message import TypeMessage

MANY_MAX: Final = 1_000
"""Messages in one frame of many."""


class QueueName(msgspec.Struct, frozen=True, gc=False):
    """The payload of what concerns a queue as a whole."""

    queue_name: str


class CreateQueuePayload(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    queue_name: str
    queue_type: str | UnsetType = UNSET
    """`fifo`, `priority` or `delay`."""
    max_size: int | UnsetType = UNSET
    default_visibility_timeout_seconds: float | UnsetType = UNSET
    default_acknowledgment_timeout_seconds: float | UnsetType = UNSET
    enable_deduplication: bool | UnsetType = UNSET
    deduplication_window_seconds: float | UnsetType = UNSET
    enable_dead_letter_queue: bool | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    message_ttl_seconds: float | UnsetType = UNSET
    """From sending; 0: no end."""


class CreateQueue(TypeMessage, frozen=True, tag="create_queue"):
    payload: CreateQueuePayload


class QueueCreated(msgspec.Struct, frozen=True, gc=False):
    queue_name: str
    created: bool
    """False: it was there, with the same settings."""


class CreateQueueReply(TypeMessage, frozen=True, tag="create_queue_reply"):
    payload: QueueCreated


# Sending.


class Outgoing(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """A message to be sent. What is left out is as the queue has it."""

    message_payload: Raw
    topic: str = "message"
    delivery_guarantee: str = "at_least_once"
    """`fire_and_forget`, `at_least_once`, `broadcast` or `quorum` (R-Q1)."""
    priority: int = 0
    group: str = ""
    """In a fifo queue: what is kept in order (R-Q5)."""
    delay_seconds: float = 0.0
    message_ttl_seconds: float | None = None
    visibility_timeout_seconds: float | None = None
    acknowledgment_timeout_seconds: float | None = None
    max_retries: int | None = None
    required_acknowledgments: int | None = None
    """Of a quorum; more than half if absent."""
    deduplication_id: str | None = None
    headers: dict[str, str] = {}


class SendMessagePayload(Outgoing, kw_only=True, gc=False, omit_defaults=True):
    queue_name: str
    wait_seconds: float = 0.0
    """Of a broadcast or quorum: answer when it is complete or reached, or after so long."""


class SendMessage(TypeMessage, frozen=True, tag="send_message"):
    payload: SendMessagePayload


class MessageSent(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The store has it (R-Q4)."""

    queue_name: str
    message_id: str
    durability: str
    """What the store may lose in a crash: `memory` everything, `everysec` the last second, `always` nothing;
    `none` of what is stored nowhere."""
    duplicate: bool
    """`message_id` is that of the first one."""
    delivered_to: tuple[str, ...] | UnsetType = UNSET
    """Of a broadcast or quorum: the subscribers that get it."""
    acknowledged_by: tuple[str, ...] | UnsetType = UNSET
    pending_acknowledgments: tuple[str, ...] | UnsetType = UNSET
    required_acknowledgments: int | UnsetType = UNSET
    quorum_reached: bool | UnsetType = UNSET


class SendMessageReply(TypeMessage, frozen=True, tag="send_message_reply"):
    payload: MessageSent


class SendMessagesPayload(msgspec.Struct, frozen=True, gc=False):
    queue_name: str
    messages: list[Outgoing]


class SendMessages(TypeMessage, frozen=True, tag="send_messages"):
    """Many to one queue, in this order."""

    payload: SendMessagesPayload


class SendResult(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    message_id: str = ""
    duplicate: bool = False
    delivered_to: tuple[str, ...] | UnsetType = UNSET
    durability: str = ""
    """`none` of a message that is stored nowhere; else as of the reply."""
    error: ErrorBody | UnsetType = UNSET
    """Why this one was not taken; the others were."""


class MessagesSent(msgspec.Struct, frozen=True, gc=False):
    queue_name: str
    durability: str
    results: list[SendResult]


class SendMessagesReply(TypeMessage, frozen=True, tag="send_messages_reply"):
    payload: MessagesSent


# Subscribing.


class SubscribeQueuePayload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    queue_name: str
    subscriber_id: str
    topic_pattern: str = "#"
    topic_patterns: tuple[str, ...] = ()
    """Several instead of one."""
    auto_acknowledge: bool = False
    """A message counts as acknowledged when it is written to this connection."""
    metadata: dict[str, Any] = {}
    prefetch: int | UnsetType = UNSET
    """Messages that may be with this subscriber at a time."""
    visibility_timeout_seconds: float = 0.0
    """0: as message and queue have it."""
    batch: bool = False
    """Deliveries may come as `messages_pending_ack`."""
    owner: str = ""
    """A secret of the subscriber: who shows it again takes its subscription over, after a lost connection."""
    in_flight: int = 0
    """After a lost connection: how many messages the subscriber still has."""


class SubscribeQueue(TypeMessage, frozen=True, tag="subscribe_queue"):
    payload: SubscribeQueuePayload


class Subscriber(msgspec.Struct, frozen=True, gc=False):
    queue_name: str
    subscriber_id: str


class SubscribeQueueReply(TypeMessage, frozen=True, tag="subscribe_queue_reply"):
    payload: Subscriber


class UnsubscribeQueue(TypeMessage, frozen=True, tag="unsubscribe_queue"):
    """Nothing more is delivered. What the subscriber has may still be acknowledged."""

    payload: Subscriber


class UnsubscribeQueueReply(TypeMessage, frozen=True, tag="unsubscribe_queue_reply"):
    payload: Subscriber


class SubscriptionEnded(msgspec.Struct, frozen=True, gc=False):
    queue_name: str
    subscriber_id: str
    error: ErrorBody


class QueueSubscriptionEnded(TypeMessage, frozen=True, tag="queue_subscription_ended"):
    """Unasked: nothing more will be delivered, because the queue is deleted, or the name belongs to another session."""

    payload: SubscriptionEnded


# Receiving.


class Delivery(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """A message in a subscriber's hands."""

    message_id: str
    topic: str
    message_payload: Raw
    delivery_guarantee: str
    delivered_to: tuple[str, ...] = ()
    queue_name: str | UnsetType = UNSET
    receipt: str | UnsetType = UNSET
    """Tells this delivery from others of the same message."""
    acknowledgment_timeout: float | UnsetType = UNSET
    """When the lease ends, in seconds since 1970 by the store's clock (R-Q7)."""
    visibility_timeout_seconds: float | UnsetType = UNSET
    """How long the lease is from now."""
    retry_count: int | UnsetType = UNSET
    max_retries: int | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    sent_at: float | UnsetType = UNSET
    acknowledged_by: tuple[str, ...] | UnsetType = UNSET
    pending_acknowledgments: tuple[str, ...] | UnsetType = UNSET
    required_acknowledgments: int | UnsetType = UNSET
    quorum_reached: bool | UnsetType = UNSET
    delivery_timestamp: float | UnsetType = UNSET
    subscriber_id: str | UnsetType = UNSET
    """Of fire and forget: which of the subscriptions of this connection it is for."""


class MessageDelivered(TypeMessage, frozen=True, tag="message_delivered"):
    """Fire and forget: there is nothing to acknowledge."""

    payload: Delivery


class MessagePendingAck(TypeMessage, frozen=True, tag="message_pending_ack"):
    """At least once: this subscriber has it until its lease ends."""

    payload: Delivery


class BroadcastMessage(TypeMessage, frozen=True, tag="broadcast_message"):
    """This subscriber's copy, and how it stands with the others."""

    payload: Delivery


class QuorumMessage(TypeMessage, frozen=True, tag="quorum_message"):
    payload: Delivery


class Deliveries(msgspec.Struct, frozen=True, gc=False):
    queue_name: str
    subscriber_id: str
    messages: list[Delivery]


class MessagesPendingAck(TypeMessage, frozen=True, tag="messages_pending_ack"):
    """For a subscriber that asked for `batch`: messages of any guarantee."""

    payload: Deliveries


class ReceiveMessagePayload(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    queue_name: str
    max_messages: int = 1
    wait_seconds: float = 0.0
    """For the first one, up to 20."""
    visibility_timeout_seconds: float = 0.0
    subscriber_id: str = ""
    """Who holds what is received; the acknowledgement has to name it too."""
    topic_pattern: str = "#"


class ReceiveMessage(TypeMessage, frozen=True, tag="receive_message"):
    payload: ReceiveMessagePayload


class Received(msgspec.Struct, frozen=True, gc=False):
    messages: list[Delivery]


class ReceiveMessageReply(TypeMessage, frozen=True, tag="receive_message_reply"):
    payload: Received


# Acknowledging.


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What becomes of a message that is in one's hands."""

    message_id: str
    receipt: str = ""
    """Empty: whichever delivery the subscriber has, which must be subscribed by this connection."""
    success: bool = True
    retry_after_seconds: float | UnsetType = UNSET
    """Without success: when it may be delivered again; a backoff if absent (R-Q6)."""
    dead_letter: bool = False
    """Without success: no more attempts."""
    release: bool = False
    """Without success: it was not looked at, and the delivery does not count."""
    reason: str = ""
    """Kept with a dead letter."""


class AcknowledgeMessagePayload(Settlement, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    queue_name: str
    subscriber_id: str = ""


class AcknowledgeMessage(TypeMessage, frozen=True, tag="acknowledge_message"):
    payload: AcknowledgeMessagePayload


class Acknowledged(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    message_id: str
    outcome: str
    """`acknowledged`, `retry` or `dead_letter`; `expired` if its time is over; in a frame of many also `stale`: it was
    not in this subscriber's hands (any more), nothing was changed."""


class AcknowledgeMessageReply(TypeMessage, frozen=True, tag="acknowledge_message_reply"):
    payload: Acknowledged


class AcknowledgeMessagesPayload(msgspec.Struct, frozen=True, gc=False):
    queue_name: str
    subscriber_id: str
    messages: list[Settlement]


class AcknowledgeMessages(TypeMessage, frozen=True, tag="acknowledge_messages"):
    payload: AcknowledgeMessagesPayload


class Outcomes(msgspec.Struct, frozen=True, gc=False):
    outcomes: list[str]


class AcknowledgeMessagesReply(TypeMessage, frozen=True, tag="acknowledge_messages_reply"):
    payload: Outcomes


class ExtendVisibilityPayload(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    queue_name: str
    message_id: str
    visibility_timeout_seconds: float
    """From now; 0 ends the lease."""
    subscriber_id: str = ""
    receipt: str = ""


class ExtendVisibility(TypeMessage, frozen=True, tag="extend_visibility"):
    payload: ExtendVisibilityPayload


class Extended(msgspec.Struct, frozen=True, gc=False):
    message_id: str
    acknowledgment_timeout: float
    """When the lease ends now."""


class ExtendVisibilityReply(TypeMessage, frozen=True, tag="extend_visibility_reply"):
    payload: Extended


class Receipt(msgspec.Struct, frozen=True, gc=False):
    message_id: str
    receipt: str


class ExtendVisibilitiesPayload(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    queue_name: str
    subscriber_id: str
    visibility_timeout_seconds: float
    messages: list[Receipt]


class ExtendVisibilities(TypeMessage, frozen=True, tag="extend_visibilities"):
    payload: ExtendVisibilitiesPayload


class ExtendedMany(msgspec.Struct, frozen=True, gc=False):
    acknowledgment_timeouts: list[float]
    """0: it was not in this subscriber's hands any more."""


class ExtendVisibilitiesReply(TypeMessage, frozen=True, tag="extend_visibilities_reply"):
    payload: ExtendedMany


# The queue as a whole.


class DeleteQueue(TypeMessage, frozen=True, tag="delete_queue"):
    """The queue, its messages and its dead letters."""

    payload: QueueName


class PurgeQueue(TypeMessage, frozen=True, tag="purge_queue"):
    payload: QueueName


class Removed(msgspec.Struct, frozen=True, gc=False):
    queue_name: str
    removed: int
    """Messages that were there."""


class DeleteQueueReply(TypeMessage, frozen=True, tag="delete_queue_reply"):
    payload: Removed


class PurgeQueueReply(TypeMessage, frozen=True, tag="purge_queue_reply"):
    payload: Removed


class ListQueuesPayload(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    prefix: str = ""
    after: str = ""
    """The last name of the page before."""
    limit: int = 100


class ListQueues(TypeMessage, frozen=True, tag="list_queues"):
    payload: ListQueuesPayload


class ListedQueue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    queue_name: str
    queue_type: str
    current_queue_size: int
    current_in_flight_count: int
    dead_letters: int


class ListedQueues(msgspec.Struct, frozen=True, gc=False):
    queues: list[ListedQueue]
    more: bool


class ListQueuesReply(TypeMessage, frozen=True, tag="list_queues_reply"):
    payload: ListedQueues


class PeekPayload(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    queue_name: str
    max_messages: int = 10
    topic_pattern: str = "#"


class Peek(TypeMessage, frozen=True, tag="peek"):
    """The next messages, without taking them."""

    payload: PeekPayload


class PeekedMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    message_id: str
    topic: str
    message_payload: Raw
    priority: int
    retry_count: int
    headers: dict[str, str]
    sent_at: float
    why: dict[str, Any] | UnsetType = UNSET
    """Of a dead letter: `message_id`, `reason`, `at`, `deliveries` and `by` whom it failed."""


class PeekedMessages(msgspec.Struct, frozen=True, gc=False):
    messages: list[PeekedMessage]


class PeekReply(TypeMessage, frozen=True, tag="peek_reply"):
    payload: PeekedMessages


class RedrivePayload(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    queue_name: str
    """The one that the dead letters came from."""
    max_messages: int = 500


class Redrive(TypeMessage, frozen=True, tag="redrive"):
    """Dead letters back into their queue, as new messages."""

    payload: RedrivePayload


class Redriven(msgspec.Struct, frozen=True, gc=False):
    queue_name: str
    redriven: int
    left: int


class RedriveReply(TypeMessage, frozen=True, tag="redrive_reply"):
    payload: Redriven


class QueueStatisticsPayload(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Asked with the name only, answered with all of it."""

    queue_name: str
    messages_sent: int | UnsetType = UNSET
    messages_received: int | UnsetType = UNSET
    """Deliveries."""
    messages_acknowledged: int | UnsetType = UNSET
    messages_failed: int | UnsetType = UNSET
    """Out of retries, or given up."""
    messages_expired: int | UnsetType = UNSET
    messages_requeued: int | UnsetType = UNSET
    messages_purged: int | UnsetType = UNSET
    messages_redriven: int | UnsetType = UNSET
    messages_forgotten: int | UnsetType = UNSET
    """Sent by fire and forget."""
    current_queue_size: int | UnsetType = UNSET
    """Waiting, the delayed ones included."""
    current_in_flight_count: int | UnsetType = UNSET
    current_delayed_count: int | UnsetType = UNSET
    dead_letters: int | UnsetType = UNSET
    subscribers: int | UnsetType = UNSET
    success_rate: float | UnsetType = UNSET
    average_processing_time_seconds: float | UnsetType = UNSET
    settings: CreateQueuePayload | UnsetType = UNSET


class QueueStatistics(TypeMessage, frozen=True, tag="queue_statistics"):
    payload: QueueStatisticsPayload


# Recurring sends.


class SchedulePayload(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A message that is sent whenever the cron expression says."""

    schedule_name: str
    cron: str
    queue_name: str
    message_payload: Raw
    timezone: str = "UTC"
    topic: str = "message"
    priority: int = 0
    headers: dict[str, str] = {}
    next_at: float | UnsetType = UNSET
    """In answers: when it is sent next."""


class ScheduleMessage(TypeMessage, frozen=True, tag="schedule_message"):
    """Make or change a schedule."""

    payload: SchedulePayload


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    schedule_name: str
    created: bool
    next_at: float


class ScheduleMessageReply(TypeMessage, frozen=True, tag="schedule_message_reply"):
    payload: Scheduled


class ScheduleName(msgspec.Struct, frozen=True, gc=False):
    schedule_name: str


class DeleteSchedule(TypeMessage, frozen=True, tag="delete_schedule"):
    payload: ScheduleName


class ScheduleDeleted(msgspec.Struct, frozen=True, gc=False):
    schedule_name: str
    deleted: bool


class DeleteScheduleReply(TypeMessage, frozen=True, tag="delete_schedule_reply"):
    payload: ScheduleDeleted


class ListSchedulesPayload(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    after: str = ""


class ListSchedules(TypeMessage, frozen=True, tag="list_schedules"):
    payload: ListSchedulesPayload


class ListedSchedules(msgspec.Struct, frozen=True, gc=False):
    schedules: list[SchedulePayload]
    more: bool


class ListSchedulesReply(TypeMessage, frozen=True, tag="list_schedules_reply"):
    payload: ListedSchedules


MESSAGES: tuple[type[TypeMessage], ...] = (
    CreateQueue,
    CreateQueueReply,
    SendMessage,
    SendMessageReply,
    SendMessages,
    SendMessagesReply,
    SubscribeQueue,
    SubscribeQueueReply,
    UnsubscribeQueue,
    UnsubscribeQueueReply,
    QueueSubscriptionEnded,
    MessageDelivered,
    MessagePendingAck,
    BroadcastMessage,
    QuorumMessage,
    MessagesPendingAck,
    ReceiveMessage,
    ReceiveMessageReply,
    AcknowledgeMessage,
    AcknowledgeMessageReply,
    AcknowledgeMessages,
    AcknowledgeMessagesReply,
    ExtendVisibility,
    ExtendVisibilityReply,
    ExtendVisibilities,
    ExtendVisibilitiesReply,
    DeleteQueue,
    DeleteQueueReply,
    PurgeQueue,
    PurgeQueueReply,
    ListQueues,
    ListQueuesReply,
    Peek,
    PeekReply,
    Redrive,
    RedriveReply,
    QueueStatistics,
    ScheduleMessage,
    ScheduleMessageReply,
    DeleteSchedule,
    DeleteScheduleReply,
    ListSchedules,
    ListSchedulesReply,
)

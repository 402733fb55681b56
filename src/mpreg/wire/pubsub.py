"""Messages of topics. A payload stays raw bytes, in the encoding of its message, all the way to who reads it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from mpreg.wire.message import RoleMessage

BATCH_MESSAGES_MAX: Final = 10_000
"""Messages in one `pubsub-publish`."""

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Time = Annotated[float, Meta(ge=0, lt=1e12)]
"""Seconds since 1970."""


class PubSubMessage(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """What is published, and what subscribers get. The node fills in a `message_id` and a `timestamp` that the
    publisher left out (R-P6); it is not frozen so that this needs no copy."""

    topic: str
    payload: Raw
    timestamp: Time | UnsetType = UNSET
    """When it was published, by the publisher's clock. No window of the node depends on it."""
    message_id: Name | UnsetType = UNSET
    publisher: Name | UnsetType = UNSET
    headers: dict[str, Any] | UnsetType = UNSET
    reply_to: Annotated[str, Meta(min_length=1, max_length=1024)] | UnsetType = UNSET
    """The topic at which the publisher waits for an answer."""


class PubSubPublish(RoleMessage, frozen=True, tag="pubsub-publish"):
    """One `message`, or `messages`, which are published all or none."""

    u: str | UnsetType = UNSET
    message: PubSubMessage | UnsetType = UNSET
    messages: list[PubSubMessage] | UnsetType = UNSET
    ack: bool = False
    """Answer with `pubsub-ack` (R-W9)."""


class PubSubPattern(msgspec.Struct, frozen=True, gc=False):
    pattern: str
    exact_match: bool = False
    """The pattern is a topic, taken literally."""


class PubSubSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection wants to hear. `after` and `batch` are what a client needs to miss nothing and to be fast."""

    subscription_id: Name
    patterns: tuple[PubSubPattern, ...]
    subscriber: str | UnsetType = UNSET
    created_at: float | UnsetType = UNSET
    get_backlog: bool = False
    backlog_seconds: float | UnsetType = UNSET
    """The node's window if absent; a longer one is cut to it (R-P4)."""
    after: dict[str, int] | UnsetType = UNSET
    """Positions that the subscriber has reached: of the backlog, only what came after them."""
    batch: bool = False
    """Notifications may carry `messages` instead of one `message`."""
    on_slow: Literal["disconnect", "drop_oldest"] = "disconnect"
    """When the subscriber does not keep up: close its connection, or leave out messages."""


class PubSubSubscribe(RoleMessage, frozen=True, tag="pubsub-subscribe"):
    subscription: PubSubSubscription
    u: str | UnsetType = UNSET
    ack: bool = False


class PubSubUnsubscribe(RoleMessage, frozen=True, tag="pubsub-unsubscribe"):
    subscription_id: str
    u: str | UnsetType = UNSET
    ack: bool = False


class PubSubAck(RoleMessage, frozen=True, tag="pubsub-ack"):
    """An operation that asked for it has succeeded; a failure is an `error-response`."""

    operation_id: str
    """The id of the message (the last one of several) or of the subscription."""
    success: bool = True
    error: str | None = None
    u: str | UnsetType = UNSET
    duplicates: int | UnsetType = UNSET
    """Of the published messages, how many this publisher had published before."""
    positions: dict[str, int] | UnsetType = UNSET
    """Where the live messages of a new subscription begin."""
    gap: bool | UnsetType = UNSET
    """The backlog does not reach back to the positions that were asked for."""


class PubSubNotification(RoleMessage, frozen=True, tag="pubsub-notification"):
    """One `message`, or several in the order of publishing for a subscription that asked for `batch`. They stay raw
    until it is known what type the subscriber wants their payload to have."""

    subscription_id: str
    u: str | UnsetType = UNSET
    backlog: bool = False
    """Published before the subscription began (R-P4)."""
    positions: dict[str, int] | UnsetType = UNSET
    """How far these messages bring the subscriber, by the node where they were published."""
    message: Annotated[Raw, Meta(description="A `PubSubMessage`.")] | UnsetType = UNSET
    messages: Annotated[Raw, Meta(description="A list of `PubSubMessage`.")] | UnsetType = UNSET


MESSAGES: tuple[type[RoleMessage], ...] = (
    PubSubPublish,
    PubSubSubscribe,
    PubSubUnsubscribe,
    PubSubAck,
    PubSubNotification,
)


class InternalInterest(RoleMessage, frozen=True, tag="internal-interest"):
    """Node to node: which patterns somebody at the sender wants, as changes of what it said before on this link."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    reset: bool = False
    """Forget what was said before."""


class InternalPublish(RoleMessage, frozen=True, tag="internal-publish"):
    """Node to node: messages published at the sender that the receiver wants, in the order of publishing."""

    seqs: list[int]
    """Their places among all messages of the sender, as in positions."""
    messages: list[PubSubMessage]


class InternalBacklog(RoleMessage, frozen=True, tag="internal-backlog"):
    """Node to node: what was published at the receiver lately and matches. Without `seconds` only its position."""

    u: str
    patterns: tuple[str, ...]
    seconds: float | UnsetType = UNSET
    after: dict[str, int] | UnsetType = UNSET


class InternalBacklogAnswer(RoleMessage, frozen=True, tag="internal-backlog-answer"):
    """A page of it, the oldest first. What is published after the last page comes by `internal-publish`."""

    u: str
    seq: int
    """Up to here the pages together are complete."""
    seqs: tuple[int, ...] = ()
    times: tuple[float, ...] = ()
    """When each was published, by the sender's clock, which shows `now`."""
    now: float = 0.0
    messages: tuple[PubSubMessage, ...] = ()
    more: bool = False
    """It goes on when it is asked again, with `after` at `seq`."""
    parts: bool = False
    """Another part of this page follows at once, as its payloads have the other encoding."""
    gap: bool = False
    """The backlog does not reach back to where it was asked from."""


BETWEEN_NODES: tuple[type[RoleMessage], ...] = (
    InternalInterest,
    InternalPublish,
    InternalBacklog,
    InternalBacklogAnswer,
)

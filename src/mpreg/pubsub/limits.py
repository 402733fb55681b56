"""How much a node keeps and allows for topics. Every figure can be configured."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mpreg.wire.limits import MB

Positive = Annotated[int, Meta(ge=1)]


class PubSubLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is past a limit of subscriptions is refused with `PUBSUB_LIMIT`; the backlog drops its oldest."""

    subscriptions_per_connection_max: Positive = 100_000
    patterns_per_subscription_max: Positive = 1_000
    patterns_max: Positive = 5_000_000
    """Of all subscriptions of the node; 130 to 160 bytes each."""
    hot_topics_max: Positive = 65_536
    """Topics whose subscriptions are remembered."""
    backlog_window_s: Annotated[float, Meta(ge=0, le=86_400)] = 300.0
    """R-P4; 0 keeps no backlog."""
    backlog_messages_max: Annotated[int, Meta(ge=0)] = 100_000
    backlog_bytes_max: Annotated[int, Meta(ge=0)] = 64 * MB
    backlog_visits_max: Positive = 500_000
    """Topics and levels that one subscribe may look at to find its backlog, about a microsecond each."""
    replayed_messages_max: Positive = 1_000_000
    """Of the backlog, that one connection has asked for and not read yet; past it the next subscribe that asks for a
    backlog is refused."""
    publishers_max: Positive = 1_024
    """Publishers whose recent message ids are known, so that a message sent again is published once."""
    ids_per_publisher_max: Positive = 4_096
    written_bytes_max: Positive = MB
    """Handed to the link of a subscriber before it has read them. What comes on top waits here, one copy for all; under
    `on_slow: disconnect` until the link's own limit is reached (`limits.waiting_bytes_max`)."""
    waiting_messages_max: Positive = 10_000
    """The same under `on_slow: drop_oldest`; past it the oldest are left out."""
    waiting_bytes_max: Positive = 16 * MB
    """Likewise, in bytes."""
    handler_messages_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Messages that wait for one handler in the node's own program; past it the oldest are left out."""

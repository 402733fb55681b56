"""How much a node holds for queues, and how long it waits. Every figure can be configured."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    create_on_demand: bool = False
    """Make a queue, as `create_queue` with its name alone would, when someone sends or subscribes to it."""
    prefetch_default: Annotated[int, Meta(ge=1, le=10_000)] = 16
    """Messages that may be with a subscriber that names no figure."""
    prefetch_max: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    wait_max_s: Annotated[float, Meta(ge=0, le=300)] = 20.0
    """Of `receive_message`, and of a sender that waits for a quorum."""
    unsent_messages_max: Positive = 100_000
    """Of one queue, on their way to the store; past it a send is refused with `RESOURCE_EXHAUSTED`."""
    unsent_bytes_max: Positive = 64_000_000
    running_max: Positive = 10_000
    """Requests that are under way, sends and acknowledgements aside; past it the next is refused."""
    subscriptions_per_connection_max: Positive = 10_000
    desks_max: Positive = 10_000
    """Queues of which something is remembered between two requests."""
    subscriber_lease_s: Annotated[float, Meta(ge=1, le=600)] = 15.0
    """How long a subscriber whose node has died still counts as there."""
    poll_s: Annotated[float, Meta(ge=0.05, le=300)] = 5.0
    """How often the store is asked though it has said nothing."""

"""What a subscribe asks for, checked: nothing is changed unless all of it is right."""

from __future__ import annotations

import math

from msgspec import UNSET

from mpreg.errors import PubSubError
from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.patterns import Levels, parse_pattern
from mpreg.wire.pubsub import PubSubSubscription


def patterns_of(subscription: PubSubSubscription, limits: PubSubLimits) -> tuple[Levels, ...]:
    """Each canonical pattern once. Raises `PUBSUB_LIMIT`, `PUBSUB_INVALID_PATTERN` or `PUBSUB_INVALID_SUBSCRIPTION`."""
    asked = subscription.patterns
    limit = limits.patterns_per_subscription_max
    if len(asked) > limit:
        raise PubSubError(
            "PUBSUB_LIMIT",
            f"{len(asked)} patterns in one subscription; the limit is {limit}",
            field="patterns",
            limit=limit,
        )
    if not asked:
        raise PubSubError("PUBSUB_INVALID_SUBSCRIPTION", "A subscription needs at least one pattern", field="patterns")
    parsed = dict.fromkeys(parse_pattern(each.pattern, exact=each.exact_match) for each in asked)
    return tuple(levels for levels in parsed if levels is not None)


def backlog_seconds_of(subscription: PubSubSubscription, limits: PubSubLimits) -> float | None:
    """How far back to look; None if no backlog is asked for. A window longer than the node's is cut to it (R-P4)."""
    seconds = subscription.backlog_seconds
    if seconds is UNSET:
        seconds = limits.backlog_window_s
    elif math.isnan(seconds) or seconds < 0:
        raise PubSubError(
            "PUBSUB_INVALID_SUBSCRIPTION",
            f"backlog_seconds is {seconds:g}; it is at least 0",
            field="backlog_seconds",
            limit=0,
        )
    return min(seconds, limits.backlog_window_s) if subscription.get_backlog else None

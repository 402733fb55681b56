"""How a queue behaves: set when it is made, and the same for its whole life."""

from __future__ import annotations

import math
from typing import Any, Final, Literal, cast, get_args

import msgspec

from mpreg.queues.names import invalid

QueueType = Literal["fifo", "priority", "delay"]
Guarantee = Literal["fire_and_forget", "at_least_once", "broadcast", "quorum"]

TYPES: Final = get_args(QueueType)
GUARANTEES: Final = get_args(Guarantee)

SIZE_MAX: Final = 100_000_000
LEASE_MAX_S: Final = 12 * 3600.0
KEPT_MAX_S: Final = 366 * 86_400.0
RETRIES_MAX: Final = 1_000
PRIORITY_MAX: Final = 1_000
DEAD_LETTERS_KEPT_S: Final = 14 * 86_400.0

BACKOFF_BASE_S: Final = 1.0
BACKOFF_FACTOR: Final = 2.0
BACKOFF_MAX_S: Final = 30.0


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `create_queue`, with what holds where one is left out."""

    queue_type: QueueType = "priority"
    """`priority`: higher first, then as sent. `fifo`: as sent, one at a time in each group. `delay`: as they fall due.
    """
    max_size: int = 100_000
    """Messages that wait or are in flight; a copy of a broadcast counts as one."""
    default_visibility_timeout_seconds: float = 30.0
    """How long a lease is; whoever needs longer extends it."""
    default_acknowledgment_timeout_seconds: float = 300.0
    """How long one delivery can be held by extending; and how long a broadcast waits for each subscriber."""
    enable_deduplication: bool = False
    deduplication_window_seconds: float = 300.0
    enable_dead_letter_queue: bool = True
    max_retries: int = 3
    message_ttl_seconds: float = 0.0
    """From sending; 0: no end."""

    def check(self) -> QueueSettings:
        if self.queue_type not in TYPES:
            raise invalid("queue_type", f"is one of {', '.join(TYPES)}, not {self.queue_type!r:.60}")
        number("max_size", self.max_size, 1, SIZE_MAX)
        seconds("default_visibility_timeout_seconds", self.default_visibility_timeout_seconds, 0.001, LEASE_MAX_S)
        seconds(
            "default_acknowledgment_timeout_seconds",
            self.default_acknowledgment_timeout_seconds,
            0.001,
            KEPT_MAX_S / 12,
        )
        seconds("deduplication_window_seconds", self.deduplication_window_seconds, 0.001, KEPT_MAX_S)
        number("max_retries", self.max_retries, 0, RETRIES_MAX)
        seconds("message_ttl_seconds", self.message_ttl_seconds, 0, KEPT_MAX_S)
        return self

    def stored(self) -> dict[str, Any]:
        """As the store keeps them: times in whole milliseconds."""
        return {
            "type": self.queue_type,
            "max_size": self.max_size,
            "visibility_ms": milliseconds(self.default_visibility_timeout_seconds),
            "ack_ms": milliseconds(self.default_acknowledgment_timeout_seconds),
            "dedup": int(self.enable_deduplication),
            "window_ms": milliseconds(self.deduplication_window_seconds),
            "dlq": int(self.enable_dead_letter_queue),
            "retries": self.max_retries,
            "ttl_ms": milliseconds(self.message_ttl_seconds),
        }


def settings_of(stored: dict[str, str]) -> QueueSettings:
    """The way back from `stored`."""
    return QueueSettings(
        queue_type=msgspec.convert(stored["type"], QueueType),
        max_size=int(stored["max_size"]),
        default_visibility_timeout_seconds=int(stored["visibility_ms"]) / 1000,
        default_acknowledgment_timeout_seconds=int(stored["ack_ms"]) / 1000,
        enable_deduplication=stored["dedup"] == "1",
        deduplication_window_seconds=int(stored["window_ms"]) / 1000,
        enable_dead_letter_queue=stored["dlq"] == "1",
        max_retries=int(stored["retries"]),
        message_ttl_seconds=int(stored["ttl_ms"]) / 1000,
    )


def guarantee_of(text: str) -> Guarantee:
    """Raises `QUEUE_INVALID` for what is none."""
    for known in GUARANTEES:
        if known == text:
            return cast(Guarantee, known)
    raise invalid("delivery_guarantee", f"is one of {', '.join(GUARANTEES)}, not {text!r:.60}")


def milliseconds(value: float) -> int:
    return math.ceil(value * 1000)


def backoff_ms(deliveries: int, jitter: float) -> int:
    """The pause after the n-th delivery failed (R-Q6); `jitter` is 0 to 1, and takes off up to half of it."""
    tries = min(max(1, deliveries), RETRIES_MAX)  # a forged receipt may say anything
    full = min(BACKOFF_BASE_S * BACKOFF_FACTOR ** (tries - 1), BACKOFF_MAX_S)
    return milliseconds(full * (1 - jitter / 2))


def seconds(field: str, value: float, least: float, most: float) -> float:
    if isinstance(value, bool) or not least <= value <= most:
        raise invalid(field, f"is {least:g} to {most:g} seconds, not {value!r:.60}", limit=most)
    return value


def number(field: str, value: int, least: int, most: int) -> int:
    if isinstance(value, bool) or not least <= value <= most:
        raise invalid(field, f"is {least} to {most}, not {value!r:.60}", limit=most)
    return value

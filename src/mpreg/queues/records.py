"""What the verbs of a queue take and return."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from mpreg.queues.message import Stored
from mpreg.queues.settings import QueueSettings

Verb = Literal["acknowledge", "retry", "dead_letter", "release"]
"""What to do with a message; to release it is to say that it was never seen."""
Outcome = Literal["acknowledged", "retry", "dead_letter", "expired", "stale"]
VERBS: Final[dict[Verb, str]] = {"acknowledge": "a", "retry": "r", "dead_letter": "d", "release": "l"}
OUTCOMES: Final[dict[bytes, Outcome]] = {
    b"a": "acknowledged",
    b"r": "retry",
    b"d": "dead_letter",
    b"e": "expired",
    b"s": "stale",
}


_DIGITS_MAX: Final = 16


class Packed(msgspec.Struct, frozen=True, gc=False):
    """A message on its way to `send.lua`."""

    meta: bytes
    rest: bytes
    digest: str = ""
    """By which it is known again; empty: not at all."""


class Sent(msgspec.Struct, frozen=True):
    """What became of one message: taken in, or a duplicate of an earlier one."""

    message_id: str
    duplicate: bool = False
    subscribers: tuple[str, ...] | None = None
    """Of a broadcast or quorum: who will get it."""


class Claimed(msgspec.Struct, frozen=True):
    """One message in someone's hands."""

    taker: int
    """The how manieth of those who asked."""
    subscriber: str
    message_id: str
    receipt: str
    deliveries: int
    lease_until_ms: int
    extend_until_ms: int
    message: Stored


class Batch(msgspec.Struct, frozen=True):
    now_ms: int
    next_ms: int
    """When to ask again though nothing was sent; 0: never. Not after `now_ms`: at once, there is more."""
    claimed: list[Claimed]


class Taker(msgspec.Struct, frozen=True):
    """A subscriber that has room."""

    subscriber: str
    most: int
    patterns: tuple[str, ...] = ()
    """None, or one that matches everything: every topic."""
    visibility_ms: int = 0
    """0: each message's own."""


class Cast(msgspec.Struct, frozen=True):
    """How a broadcast or quorum stands."""

    subscribers: tuple[str, ...]
    acknowledged: tuple[str, ...]
    failed: tuple[str, ...]
    required: int
    """Of a broadcast 0."""

    @property
    def pending(self) -> tuple[str, ...]:
        done = {*self.acknowledged, *self.failed}
        return tuple(name for name in self.subscribers if name not in done)

    @property
    def reached(self) -> bool:
        return 0 < self.required <= len(self.acknowledged)


def split_receipt(receipt: str) -> tuple[str, int, int]:
    """Id within the queue, number of the delivery, and the how manieth of this message it is."""
    try:
        id_, number, deliveries = receipt.rsplit("/", 2)
        if len(number) < _DIGITS_MAX and len(deliveries) < _DIGITS_MAX and (found := int(number)) > 0:
            return id_, found, int(deliveries)
    except ValueError:
        pass
    return "", 0, 0


class Lease(msgspec.Struct, frozen=True):
    """What `acknowledge` and `extend` need to know."""

    message_id: str
    holder: str = ""
    receipt: str = ""
    """Empty: whichever delivery the holder has."""
    verb: Verb = "acknowledge"
    delay_ms: int = 0
    """Of a retry."""
    reason: str = ""


class Peeked(msgspec.Struct, frozen=True):
    message_id: str
    deliveries: int
    message: Stored
    why: dict[str, Any] | None


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int
    ready: int
    delayed: int
    in_flight: int
    subscribers: int
    counters: dict[str, int]
    settings: QueueSettings
    prefix: str


COUNTERS: Final = (
    "sent",
    "units",
    "received",
    "acknowledged",
    "failed",
    "expired",
    "requeued",
    "purged",
    "redriven",
    "fired",
    "processing_ms",
)

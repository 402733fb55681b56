"""What the verbs of a queue take and return."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from mpreg.queues.message import Stored
from mpreg.queues.settings import QueueSettings

Verb = Literal["acknowledge", "retry", "dead_letter", "release"]
"""What to do with a message; to release it is to say that it was never seen."""
Outcome = Literal["acknowledged", "retry", "dead_letter", "expired", "stale"]
VERBS: Final[dict[Verb, str]] = {"acknowledge": "a", "retry": "r", "dead_letter": "d", "release": "l"}
OUTCOMES: Final[dict[int, Outcome]] = {
    ord("a"): "acknowledged",
    ord("r"): "retry",
    ord("d"): "dead_letter",
    ord("e"): "expired",
    ord("s"): "stale",
}


class Packed(msgspec.Struct, frozen=True, gc=False):
    """A message on its way to `send.lua`."""

    meta: bytes
    payload: bytes
    digest: str = ""
    """By which it is known again; empty: not at all."""


class Sent(msgspec.Struct, frozen=True, gc=False):
    """What became of one message: taken in, or a duplicate of an earlier one."""

    message_id: str
    duplicate: bool = False
    subscribers: tuple[str, ...] | None = None
    """Of a broadcast or quorum: who will get it."""


class Held(msgspec.Struct, gc=False):
    """One message in someone's hands: which, and by which delivery. Messages that are handed out together share `first`
    and `number`, so that what becomes of many of them is said in one breath."""

    receipt: str
    """All of this as text, for the holder: its own id and number of delivery, deliveries, place."""
    first: str
    """Id of the first message that was handed out with it; of a copy, `@` and the subscriber follow."""
    number: int
    """Of the delivery of that one."""
    place: int
    """Its own place behind that one."""
    deliveries: int
    """The how manieth of this message it is."""
    until: float = 0.0
    """When the lease ends, by the clock of the loop that keeps it."""


class Claimed(msgspec.Struct, frozen=True):
    """Messages in someone's hands that were sent and handed out together: one, or several of one parcel."""

    taker: int
    """The how manieth of those who asked."""
    subscriber: str
    message_ids: list[str]
    held: list[Held]
    deliveries: int
    lease_until_ms: int
    extend_until_ms: int
    messages: Stored

    @property
    def is_copy(self) -> bool:
        """Of a broadcast or quorum."""
        return "@" in self.held[0].first


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


_RECEIPT: Final = re.compile(r"([0-9a-f]{10})(@.+)?/([1-9][0-9]{0,14})/([0-9]{1,9})/([0-9]{1,5})", re.DOTALL)


def held_by(message_id: str, receipt: str) -> Held:
    """What a receipt says. One that can't be read, or is another message's, holds nothing."""
    found = _RECEIPT.fullmatch(receipt)
    prefix, dash, number_ = message_id.rpartition("-")
    if found is None or found[1] != number_:
        return NOTHING
    copy, number, place = found[2] or "", int(found[3]), int(found[5])
    first = int(found[1], 16) - place
    if place >= number or first < 1 or place > PLACE_MAX or (copy and place):
        return NOTHING
    return Held(receipt, f"{prefix}{dash}{first:010x}{copy}", number - place, place, int(found[4]))


PLACE_MAX: Final = 65_535
NOTHING: Final = Held("", "", 0, 0, 0)
"""Names no delivery."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """What `acknowledge` and `extend` need to know."""

    held: Held
    holder: str
    verb: Verb = "acknowledge"
    delay_ms: int = 0
    """Of a retry."""
    reason: str = ""


class Peeked(msgspec.Struct, frozen=True):
    message_id: str
    deliveries: int
    messages: Stored
    place: int
    """Which of these it is."""
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
"""The last ones of those in lua/queue.lua, in its order."""

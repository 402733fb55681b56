"""The keys of a queue. All of one queue, its dead letters included, share one hash slot, for one script changes them
together; only `mpreg:queues`, the list of names, stands apart. What they hold: lua/queue.lua.
"""

from __future__ import annotations

from typing import Final

from mpreg.keyspace import Keyspace, raw, text
from mpreg.queues.names import DEAD

QUEUES: Final = Keyspace("queues", prefix="mpreg:", about="Queues: their messages, leases and dead letters.")

NAMES: Final = QUEUES.set("queues", text, about="The names of all queues.", protection="state")
SEEN: Final = QUEUES.string(
    "q:{{{queue}}}:seen:{digest:word}", text, ttl=366 * 86_400.0, about="Deduplication: the id of the first one."
)

_HASHES: Final = {
    "cfg": "Settings and counters of the queue.",
    "msg": "Messages by id.",
    "held": "Deliveries so far, and the holder, by id.",
    "subs": "Subscribers that are there, by name.",
    "casts": "Who has acknowledged a broadcast, by id.",
    "groups": "Groups of a fifo queue of which a message is in flight.",
    "why": "What became of a dead letter, by id.",
}
_ZSETS: Final = {
    "ready": "What can be taken, by lane and order.",
    "active": "Lanes that have something to give, by the order of their first.",
    "delayed": "Ids by when they are due, ms.",
    "leased": "Ids by when their lease ends, ms.",
    "expiry": "Ids by when their TTL ends, ms.",
}
_ORDER: Final = (
    "cfg", "msg", "ready", "active", "delayed", "leased", "held", "subs", "casts", "expiry", "groups", "why"
)  # fmt: skip

_FAMILIES: Final = {
    tail + part: (QUEUES.free_hash if part in _HASHES else QUEUES.zset)(
        "q:{{{queue}}}" + tail + ":" + part,
        raw,
        name="q" + tail + ":" + part,
        about=about + (" Of the dead letters." if tail else ""),
        protection="state",
    )
    for tail in ("", DEAD)
    for part, about in {**_HASHES, **_ZSETS}.items()
}


SCHEDULES: Final = tuple(
    family.key()
    for family in (
        QUEUES.zset("{{schedules}}:due", raw, about="Recurring sends by when they are due, ms.", protection="state"),
        QUEUES.free_hash("{{schedules}}:definitions", raw, about="Recurring sends by name.", protection="state"),
        QUEUES.free_hash("{{schedules}}:taken", raw, about="When those were due that a node is sending."),
    )
)
"""The three keys of all recurring sends, which share one hash slot."""


def keys_of(queue: str) -> tuple[bytes, ...]:
    """The twelve keys in the order in which the scripts expect them."""
    base = queue.removesuffix(DEAD)
    tail = queue[len(base) :]
    return tuple(_FAMILIES[tail + part].key(queue=base) for part in _ORDER)


def channel_of(queue: str) -> bytes:
    """Where a queue says that there is something to take, how a broadcast stands, and that it is deleted."""
    return keys_of(queue)[0][:-3] + b"events"

"""What must hold of a history of queues, whatever happened to the processes: pure functions over recorded events.

Every process writes down what it knows when it knows it; a process that is killed writes nothing more. Leases are told
by the store's clock, which all deliveries of a run share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

What = Literal["sending", "sent", "received", "acknowledged", "retrying", "retried", "stale"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    what: What
    process: int
    key: str
    """Of the message, made by its sender: `sender/number`."""
    group: str = ""
    message_id: str = ""
    receipt: str = ""
    lease_from: float = 0.0
    """Of what is received: when the store handed it out."""
    lease_until: float = 0.0
    """As far as is known at this moment: a renewal moves it."""
    retry_count: int = 0


class Left(msgspec.Struct, frozen=True):
    """What is in the store in the end, when the queue has drained."""

    dead: frozenset[str] = frozenset()
    """Keys of dead letters."""
    expired: int = 0
    waiting: int = 0


def violations(events: Sequence[Event], left: Left, max_retries: int) -> list[str]:
    """What is wrong with a history; empty if it is as it must be."""
    return [
        *_lost(events, left),
        *_unsent(events),
        *_too_often(events, max_retries),
        *_two_holders(events),
        *_acknowledged_twice(events),
        *_out_of_order(events),
    ]


def _lost(events: Iterable[Event], left: Left) -> list[str]:
    """Every send that was acknowledged is acknowledged by a consumer, or is a dead letter, or has expired. Whether a
    consumer that was killed had acknowledged just before is not known; then somebody must at least have had it, and
    nothing may wait any more."""
    events = list(events)
    sent = {event.key for event in events if event.what == "sent"}
    received = {event.key for event in events if event.what == "received"}
    gone = sent - received - left.dead
    found = [f"{key} was sent, and nobody ever got it" for key in sorted(gone)[left.expired :]]
    if left.waiting:
        found.append(f"{left.waiting} messages wait, though the queue has drained")
    return found


def _unsent(events: Iterable[Event]) -> list[str]:
    events = list(events)
    sent = {event.key for event in events if event.what in ("sent", "sending")}
    received = {event.key for event in events if event.what == "received"}
    return [f"{key} was received, and nobody sent it" for key in sorted(received - sent)]


def _too_often(events: Iterable[Event], max_retries: int) -> list[str]:
    deliveries: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.what == "received":
            deliveries[event.message_id].add(event.receipt)
    most = max_retries + 1
    return [f"{id_} was delivered {len(all_)} times" for id_, all_ in sorted(deliveries.items()) if len(all_) > most]


class _Delivery(msgspec.Struct):
    receipt: str
    begins: float
    ends: float
    settled: bool = False


def _two_holders(events: Iterable[Event]) -> list[str]:
    """A message is handed out again only when the lease before has ended, or its holder gave it back; from the moment
    that it says so (`retrying`), for it may be killed before it hears the answer."""
    deliveries: dict[str, dict[str, _Delivery]] = defaultdict(dict)
    for event in events:
        known = deliveries[event.message_id].get(event.receipt)
        if event.what == "received":
            made = _Delivery(event.receipt, event.lease_from, event.lease_until)
            deliveries[event.message_id][event.receipt] = known or made
        elif known is not None and event.what in ("acknowledged", "retrying"):
            known.settled = True
            known.ends = max(known.ends, event.lease_until)
    found = []
    for message_id, all_ in sorted(deliveries.items()):
        ordered = sorted(all_.values(), key=lambda delivery: delivery.begins)
        for one, following in pairwise(ordered):
            if following.begins < one.ends and not one.settled:
                found.append(
                    f"{message_id} was handed out again {one.ends - following.begins:.3f} s before its lease ended"
                )
    return found


def _acknowledged_twice(events: Iterable[Event]) -> list[str]:
    done: dict[str, int] = defaultdict(int)
    for event in events:
        done[event.message_id] += event.what == "acknowledged"
    return [f"{id_} was acknowledged {times} times" for id_, times in sorted(done.items()) if times > 1]


def _out_of_order(events: Iterable[Event]) -> list[str]:
    """In a group, no message is handed out before one that the same sender had sent earlier, and none while an earlier
    one may still be handed out again. `sent` in the order of the sender's own file."""
    events = list(events)
    place: dict[str, int] = {}
    for event in events:
        if event.what == "sent" and event.group:
            place.setdefault(event.key, len(place))
    begins: dict[str, list[float]] = defaultdict(list)
    streams: dict[tuple[str, str], set[str]] = defaultdict(set)
    for event in events:
        if event.what == "received" and event.key in place:
            begins[event.key].append(event.lease_from)
            streams[(event.key.partition("/")[0], event.group)].add(event.key)
    found = []
    for (sender, group), keys in sorted(streams.items()):
        ordered = sorted(keys, key=place.__getitem__)
        for earlier, later in pairwise(ordered):
            if min(begins[later]) < max(begins[earlier]):
                found.append(f"{group} of {sender}: {later} was handed out before {earlier} was done")
    return found

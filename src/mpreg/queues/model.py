"""What a queue does, in plain Python: the words of the scripts without any of their cleverness.

Everything is one list of units (a message, or one subscriber's copy of a broadcast) that are looked at one by one: the
oracle of the tests and the shortest description of the rules; nothing else uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from mpreg.queues.message import Message
from mpreg.queues.records import Taker
from mpreg.queues.settings import QueueSettings, milliseconds

State = Literal["waiting", "in_flight"]


class Unit(msgspec.Struct, kw_only=True):
    number: int
    message: Message
    subscriber: str | None = None
    """Of a copy: whose it is."""
    lane: str = ""
    """What it waits behind in a fifo queue: its group, or its subscriber."""
    due: int = 0
    expires: int | None = None
    deliveries: int = 0
    holder: str = ""
    delivery: int = 0
    lease_until: int = 0
    extend_until: int = 0
    state: State = "waiting"

    @property
    def key(self) -> tuple[int, str | None]:
        return (self.number, self.subscriber)


class Cast(msgspec.Struct):
    """A broadcast or quorum under way."""

    subscribers: tuple[str, ...]
    required: int
    acknowledged: list[str] = []
    failed: list[str] = []

    @property
    def pending(self) -> set[str]:
        return set(self.subscribers) - set(self.acknowledged) - set(self.failed)

    @property
    def reached(self) -> bool:
        return 0 < self.required <= len(self.acknowledged)


class Subscriber(msgspec.Struct, frozen=True):
    owner: str
    by: str
    until: int
    patterns: tuple[str, ...]


class Model:
    """The caller tells the time, in ms; it never goes back."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.units: list[Unit] = []
        self.casts: dict[int, Cast] = {}
        self.dead: list[tuple[Unit, str]] = []
        self.subscribers: dict[str, Subscriber] = {}
        self.seen: dict[str, tuple[int, int]] = {}
        self.counters = dict.fromkeys(
            ("sent", "units", "received", "acknowledged", "failed", "expired", "requeued", "purged", "redriven"), 0
        )
        self.ties: dict[tuple[int, str | None], int] = {}
        """Of messages that fall due in the same millisecond, which comes first; not promised, so a test may say."""
        self._numbers = 0
        self._deliveries = 0

    # --- time -------------------------------------------------------------------------------------------------------

    def settle(self, now: int) -> None:
        leased = [unit for unit in self.units if unit.state == "in_flight" and unit.lease_until <= now]
        for unit in sorted(leased, key=lambda unit: unit.lease_until):
            self._give_back(unit, now, 0, "the lease ran out")
        for unit in list(self.units):
            if unit.state == "waiting" and unit.expires is not None and unit.expires <= now:
                self._end(unit, "expired")

    # --- verbs ------------------------------------------------------------------------------------------------------

    def send(
        self, messages: Sequence[Message], now: int, *, deduplicate: bool = False
    ) -> list[int | tuple[Literal["duplicate", "quorum"], int] | Literal["full"]]:
        self.settle(now)
        answers: list[int | tuple[Literal["duplicate", "quorum"], int] | Literal["full"]] = []
        for message in messages:
            digest = message.digest() if deduplicate or message.deduplication_id is not None else None
            first = self.seen.get(digest) if digest is not None else None
            copies = message.delivery_guarantee != "at_least_once"
            there = self._matching(message.topic, now) if copies else [None]
            required = message.required_acknowledgments or len(there) // 2 + 1
            if first is not None and first[1] > now:
                answers.append(("duplicate", first[0]))
            elif message.delivery_guarantee == "quorum" and required > len(there):
                answers.append(("quorum", len(there)))
            elif len(self.units) + len(there) > self.settings.max_size:
                answers.append("full")
            else:
                answers.append(self._take_in(message, there, required, copies, now))
                if digest is not None:
                    window = milliseconds(self.settings.deduplication_window_seconds)
                    self.seen[digest] = (self._numbers, now + window)
        return answers

    def _take_in(self, message: Message, there: Sequence[str | None], required: int, copies: bool, now: int) -> int:
        self._numbers += 1
        due = now + milliseconds(message.delay_seconds)
        ttl_s = (
            self.settings.message_ttl_seconds if message.message_ttl_seconds is None else message.message_ttl_seconds
        )
        expires = now + milliseconds(ttl_s) if ttl_s else None
        if copies:
            waits_until = due + milliseconds(self._ack_s(message))
            expires = waits_until if expires is None else min(expires, waits_until)
            if there:
                names = tuple(name for name in there if name is not None)
                self.casts[self._numbers] = Cast(names, required if message.delivery_guarantee == "quorum" else 0)
        for subscriber in there:
            lane = f"@{subscriber}" if subscriber is not None else "=" + message.group
            self.units.append(
                Unit(number=self._numbers, message=message, subscriber=subscriber, lane=lane, due=due, expires=expires)
            )
        self.counters["sent"] += 1
        self.counters["units"] += len(there)
        return self._numbers

    def claim(self, takers: Sequence[Taker], now: int) -> list[Unit]:
        """Each an equal share of what waits, then those who took all of theirs and want more."""
        self.settle(now)
        waiting = [unit for unit in self.units if unit.state == "waiting"]
        ready = sum(unit.due <= now or self.settings.queue_type == "fifo" for unit in waiting)
        share = max(1, ready // len(takers)) if len(takers) > 1 else len(self.units)
        taken: list[Unit] = []
        eager: list[tuple[Taker, int]] = []
        for taker in takers:
            most = min(taker.most, share)
            got = self._hand_to(taker, most, now)
            taken += got
            if len(got) == most < taker.most:
                eager.append((taker, taker.most - most))
        for taker, most in eager:
            taken += self._hand_to(taker, most, now)
        return taken

    def _hand_to(self, taker: Taker, most: int, now: int) -> list[Unit]:
        taken = self.peek(taker.subscriber, most, now, patterns=taker.patterns)
        for unit in taken:
            self._deliveries += 1
            unit.deliveries += 1
            unit.delivery = self._deliveries
            unit.holder = taker.subscriber
            unit.state = "in_flight"
            unit.extend_until = now + milliseconds(self._ack_s(unit.message))
            own_s = unit.message.visibility_timeout_seconds or self.settings.default_visibility_timeout_seconds
            unit.lease_until = min(unit.extend_until, now + (taker.visibility_ms or milliseconds(own_s)))
        self.counters["received"] += len(taken)
        return taken

    def peek(self, subscriber: str, most: int, now: int, *, patterns: Iterable[str] = ()) -> list[Unit]:
        self.settle(now)
        return sorted((u for u in self.units if self._may_take(u, subscriber, tuple(patterns), now)), key=self._order)[
            :most
        ]

    def acknowledge(
        self, key: tuple[int, str | None], delivery: int, holder: str, verb: str, now: int, *, delay_ms: int = 0
    ) -> str:
        self.settle(now)
        unit = self._held(key, delivery, holder)
        if unit is None:
            return "stale"
        if verb == "acknowledge":
            self._end(unit, "acknowledged")
            return "acknowledged"
        if verb == "release":
            unit.deliveries -= 1
        return self._give_back(unit, now, delay_ms, "", condemned=verb == "dead_letter")

    def extend(self, key: tuple[int, str | None], delivery: int, holder: str, by_ms: int, now: int) -> int:
        self.settle(now)
        unit = self._held(key, delivery, holder)
        if unit is None or unit.extend_until <= now:
            return 0
        unit.lease_until = min(unit.extend_until, now + by_ms)
        return unit.lease_until

    def purge(self) -> int:
        gone = len(self.units)
        self.units.clear()
        self.casts.clear()
        self.counters["purged"] += gone
        return gone

    def redrive(self, most: int, now: int) -> tuple[int, int]:
        self.settle(now)
        room = max(0, min(most, self.settings.max_size - len(self.units)))

        def order(n: int) -> tuple[bytes, int, int]:
            message = self.dead[n][0].message
            return message.topic.encode(), -message.priority, n

        moving = sorted(range(len(self.dead)), key=order)[:room]
        for n in moving:
            old = self.dead[n][0]
            self._numbers += 1
            ttl_s = self.settings.message_ttl_seconds
            fresh = msgspec.structs.replace(old.message, max_retries=None)
            self.units.append(
                Unit(
                    number=self._numbers,
                    message=fresh,
                    lane=old.lane,
                    due=now,
                    expires=now + milliseconds(ttl_s) if ttl_s else None,
                )
            )
        self.dead = [entry for n, entry in enumerate(self.dead) if n not in moving]
        self.counters["units"] += len(moving)
        self.counters["redriven"] += len(moving)
        return len(moving), len(self.dead)

    def subscribe(self, subscriber: str, owner: str, by: str, lease_ms: int, patterns: Iterable[str], now: int) -> bool:
        known = self.subscribers.get(subscriber)
        if known is not None and known.owner != owner and known.until > now:
            return False
        self.subscribers[subscriber] = Subscriber(owner, by, now + lease_ms, tuple(patterns))
        return True

    def renew(self, subscriber: str, by: str, lease_ms: int, now: int) -> bool:
        known = self.subscribers.get(subscriber)
        if known is None or known.by != by:
            return False
        self.subscribers[subscriber] = msgspec.structs.replace(known, until=now + lease_ms)
        return True

    def unsubscribe(self, subscriber: str, by: str) -> bool:
        known = self.subscribers.get(subscriber)
        if known is None or known.by != by:
            return False
        del self.subscribers[subscriber]
        return True

    # --- what they mean ---------------------------------------------------------------------------------------------

    def standing(self, now: int) -> tuple[int, int, int]:
        """How many are ready, delayed, in flight."""
        waiting = [unit for unit in self.units if unit.state == "waiting"]
        delayed = sum(unit.due > now for unit in waiting)
        return len(waiting) - delayed, delayed, len(self.units) - len(waiting)

    def conserved(self) -> bool:
        """Every unit that came in is still here, or has ended in exactly one way."""
        ended = sum(self.counters[name] for name in ("acknowledged", "failed", "expired", "purged"))
        return self.counters["units"] == len(self.units) + ended

    def _ack_s(self, message: Message) -> float:
        return message.acknowledgment_timeout_seconds or self.settings.default_acknowledgment_timeout_seconds

    def _matching(self, topic: str, now: int) -> list[str | None]:
        return [
            name
            for name, known in sorted(self.subscribers.items())
            if known.until > now and any(matches(pattern, topic) for pattern in known.patterns)
        ]

    def _may_take(self, unit: Unit, subscriber: str, patterns: tuple[str, ...], now: int) -> bool:
        if unit.state != "waiting" or unit.due > now:
            return False
        if unit.lane.startswith("@"):
            if unit.lane[1:] != subscriber:
                return False
        elif patterns and not any(matches(pattern, unit.message.topic) for pattern in patterns):
            return False
        if self.settings.queue_type != "fifo":
            return True
        before = (other for other in self.units if other.lane == unit.lane and other is not unit)
        return all(other.state == "waiting" and other.number > unit.number for other in before)

    def _order(self, unit: Unit) -> tuple[int, int]:
        match self.settings.queue_type:
            case "priority":
                return (-unit.message.priority, unit.number)
            case "delay":
                return (unit.due, self.ties.get(unit.key, unit.number))
            case _:
                return (0, unit.number)

    def _held(self, key: tuple[int, str | None], delivery: int, holder: str) -> Unit | None:
        for unit in self.units:
            if unit.key == key and unit.state == "in_flight" and unit.holder == holder:
                return unit if delivery in (0, unit.delivery) else None
        return None

    def _give_back(self, unit: Unit, now: int, delay_ms: int, reason: str, *, condemned: bool = False) -> str:
        retries = self.settings.max_retries if unit.message.max_retries is None else unit.message.max_retries
        if not condemned and unit.expires is not None and unit.expires <= now:
            self._end(unit, "expired")
            return "expired"
        if condemned or unit.deliveries > retries:
            if self.settings.enable_dead_letter_queue:
                self.dead.append((unit, reason))
            self._end(unit, "failed")
            return "dead_letter"
        unit.state, unit.due = "waiting", now + delay_ms
        self.counters["requeued"] += 1
        return "retry"

    def _end(self, unit: Unit, counter: str) -> None:
        self.units.remove(unit)
        self.counters[counter] += 1
        cast = self.casts.get(unit.number)
        if cast is not None and unit.subscriber is not None:
            (cast.acknowledged if counter == "acknowledged" else cast.failed).append(unit.subscriber)
            if not cast.pending:
                del self.casts[unit.number]


def matches(pattern: str, topic: str) -> bool:
    """`*` is one level, `#` any number of them."""

    def match(wanted: tuple[str, ...], levels: tuple[str, ...]) -> bool:
        if not wanted:
            return not levels
        if wanted[0] == "#":
            return any(match(wanted[1:], levels[n:]) for n in range(len(levels) + 1))
        return bool(levels) and wanted[0] in ("*", levels[0]) and match(wanted[1:], levels[1:])

    return match(tuple(pattern.split(".")), tuple(topic.split(".")))

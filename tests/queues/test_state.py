"""The scripts on a real store against the model, in random order and time; nothing gets lost at any step."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from tests.store.servers import StoreServers

from mpreg.errors import QueueError
from mpreg.queues import state
from mpreg.queues.message import Message, unpack
from mpreg.queues.model import Model
from mpreg.queues.records import Claimed, Held, Lease, Sent, Taker, held_by
from mpreg.queues.settings import QueueSettings
from mpreg.queues.state import Queue
from mpreg.store import Script, Store, connect

NAMES = itertools.count()
STATE_BYTES = struct.calcsize(">HHdddd")
SUBSCRIBERS = ("ann", "bob", "cy")
TOPICS = ("a", "a.b", "a.c", "b")
PATTERNS = ("#", "a.*", "a.#", "b", "*")

messages = st.builds(
    Message,
    payload=st.sampled_from([b"1", b"2", b"3"]),
    topic=st.sampled_from(TOPICS),
    delivery_guarantee=st.sampled_from(["at_least_once", "at_least_once", "at_least_once", "broadcast", "quorum"]),
    priority=st.integers(-2, 2),
    group=st.sampled_from(["", "g1", "g2"]),
    delay_seconds=st.sampled_from([0.0, 0.0, 0.0, 0.5, 3.0]),
    message_ttl_seconds=st.sampled_from([None, None, 0.0, 1.0, 20.0]),
    visibility_timeout_seconds=st.sampled_from([None, None, 0.25, 8.0]),
    acknowledgment_timeout_seconds=st.sampled_from([None, None, 2.0]),
    max_retries=st.sampled_from([None, None, 0, 1]),
    required_acknowledgments=st.sampled_from([None, None, 1, 2]),
    deduplication_id=st.sampled_from([None, None, None, None, "x", "y"]),
)
some_settings = st.builds(
    QueueSettings,
    queue_type=st.sampled_from(["fifo", "priority", "delay"]),
    max_size=st.integers(1, 16),
    default_visibility_timeout_seconds=st.sampled_from([1.0, 4.0]),
    default_acknowledgment_timeout_seconds=st.sampled_from([3.0, 30.0]),
    enable_deduplication=st.booleans(),
    deduplication_window_seconds=st.just(86_400.0),
    enable_dead_letter_queue=st.booleans(),
    max_retries=st.integers(0, 2),
    message_ttl_seconds=st.sampled_from([0.0, 0.0, 6.0]),
)
sends = st.lists(st.tuples(messages, st.sampled_from([1, 1, 2, 5])), min_size=1, max_size=4).map(
    lambda some: [each for message, times in some for each in alike(message, times)]
)
takers = st.builds(
    Taker,
    subscriber=st.sampled_from(SUBSCRIBERS),
    most=st.integers(1, 6),
    patterns=st.sampled_from([(), (), ("a.*",), ("b", "a.b"), ("#",), ("zzz",)]),
    visibility_ms=st.sampled_from([0, 0, 700]),
)
Delivery = tuple[Held, int, int, str | None]
"""What is held, number of the delivery, number of the message, subscriber of the copy."""


def alike(message: Message, times: int) -> list[Message]:
    """Messages that differ in nothing but their payloads, which are one parcel."""
    payloads = (message.payload if n == 0 else bytes([97 + n]) * n for n in range(times))
    return [msgspec.structs.replace(message, payload=payload) for payload in payloads]


class Machine(RuleBasedStateMachine):
    url: str

    deliveries: Bundle[Delivery] = Bundle("deliveries")

    @initialize(chosen=some_settings)
    def begin(self, chosen: QueueSettings) -> None:
        self.runner = asyncio.Runner()
        self.now = 1_000_000_000_000
        self.settings = chosen
        self.model = Model(chosen)
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.store: Store = await connect(self.url)
        self.queue = Queue(self.store, f"q{next(NAMES)}")
        assert await self.queue.create(self.settings, at_ms=self.now)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.queue.delete(at_ms=self.now))
            self.runner.run(self.store.close())
            self.runner.close()

    def run(self, awaitable: Any) -> Any:
        return self.runner.run(awaitable)

    @rule(ms=st.sampled_from([1, 100, 250, 999, 1000, 2500, 9000, 40_000]))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(batch=sends)
    def send(self, batch: list[Message]) -> None:
        deduplicates = self.settings.enable_deduplication
        expected = self.model.send(batch, self.now, deduplicate=deduplicates)
        got = self.run(self.queue.send(batch, deduplicate=deduplicates, at_ms=self.now))
        assert [_answer(answer) for answer in got] == expected

    @rule(target=deliveries, takers=st.lists(takers, min_size=1, max_size=3, unique_by=lambda one: one.subscriber))
    def claim(self, takers: list[Taker]) -> Any:
        if self.settings.queue_type == "delay":
            takers = takers[:1]  # which of those that fall due together goes to whom is not promised
        batch = self.run(self.queue.claim(takers, at_ms=self.now))
        got = [one for claimed in batch.claimed for one in _each(claimed)]
        if self.settings.queue_type == "delay":
            self._align_ties(got)
        units = self.model.claim(takers, self.now)
        assert [one[1:] for one in got] == [
            (
                unit.holder,
                unit.number,
                unit.subscriber,
                unit.deliveries,
                unit.delivery,
                unit.lease_until,
                unit.extend_until,
                unit.message.payload,
                unit.message.topic,
            )
            for unit in units
        ]
        return multiple(
            *((held[0], u.delivery, u.number, u.subscriber) for held, u in zip(got, units, strict=True)),
        )

    def _align_ties(self, claimed: list[tuple[Any, ...]]) -> None:
        """Messages of several topics that fall due in the same millisecond come in any order: take the store's."""
        place = {one[2:4]: n for n, one in enumerate(claimed)}
        self.model.settle(self.now)
        self.model.units.sort(key=lambda unit: place.get(unit.key, len(place) + unit.number))
        self.model.ties = {unit.key: n for n, unit in enumerate(self.model.units)}

    @rule(
        chosen=st.lists(deliveries, min_size=1, max_size=8),
        holder=st.sampled_from([*SUBSCRIBERS, "its"]),
        verb=st.sampled_from(["acknowledge", "acknowledge", "retry", "dead_letter", "release"]),
        delay_ms=st.sampled_from([0, 500, 5000]),
    )
    def acknowledge(self, chosen: list[Delivery], holder: str, verb: Any, delay_ms: int) -> None:
        """What is asked at once is done as if it were asked one by one, for messages of one parcel together."""
        leases = [Lease(held, self._holder(holder, number), verb, delay_ms) for held, number, *_ in chosen]
        asked = sorted(range(len(leases)), key=lambda n: _order_of_asking(leases, n))
        expected: list[Any] = [None] * len(leases)
        for n in asked:
            _, number, of, subscriber = chosen[n]
            expected[n] = self.model.acknowledge(
                (of, subscriber), number, leases[n].holder, verb, self.now, delay_ms=delay_ms
            )
        assert self.run(self.queue.acknowledge(leases, at_ms=self.now)) == expected

    @rule(
        chosen=st.lists(deliveries, min_size=1, max_size=8),
        holder=st.sampled_from([*SUBSCRIBERS, "its"]),
        by_ms=st.sampled_from([10, 2000, 60_000]),
    )
    def extend(self, chosen: list[Delivery], holder: str, by_ms: int) -> None:
        leases = [Lease(held, self._holder(holder, number)) for held, number, *_ in chosen]
        expected = [
            self.model.extend((of, subscriber), number, lease.holder, by_ms, self.now)
            for lease, (_, number, of, subscriber) in zip(leases, chosen, strict=True)
        ]
        assert self.run(self.queue.extend(leases, by_ms, at_ms=self.now)) == expected

    def _holder(self, named: str, number: int) -> str:
        """`its`: who has the message by this delivery, so that what is asked is often granted."""
        if named != "its":
            return named
        return next((unit.holder for unit in self.model.units if unit.delivery == number), "nobody")

    @rule(
        subscriber=st.sampled_from(SUBSCRIBERS),
        owner=st.sampled_from(["o1", "o2"]),
        by=st.sampled_from(["n1", "n2"]),
        lease_ms=st.sampled_from([3000, 60_000]),
        patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2),
    )
    def subscribe(self, subscriber: str, owner: str, by: str, lease_ms: int, patterns: list[str]) -> None:
        expected = self.model.subscribe(subscriber, owner, by, lease_ms, patterns, self.now)
        asked = self.queue.subscribe(subscriber, owner, by, lease_ms, patterns, at_ms=self.now)
        if expected:
            self.run(asked)
        else:
            with pytest.raises(QueueError, match="subscribes to"):
                self.run(asked)

    @rule(by=st.sampled_from(["n1", "n2"]), lease_ms=st.sampled_from([500, 5000]))
    def renew(self, by: str, lease_ms: int) -> None:
        expected = [name for name in SUBSCRIBERS if not self.model.renew(name, by, lease_ms, self.now)]
        assert self.run(self.queue.renew(by, lease_ms, SUBSCRIBERS, at_ms=self.now)) == expected

    @rule(subscriber=st.sampled_from(SUBSCRIBERS), by=st.sampled_from(["n1", "n2"]))
    def unsubscribe(self, subscriber: str, by: str) -> None:
        expected = self.model.unsubscribe(subscriber, by)
        assert self.run(self.queue.unsubscribe(subscriber, by, at_ms=self.now)) == expected

    @rule(most=st.integers(1, 3))
    def redrive(self, most: int) -> None:
        if self.settings.enable_dead_letter_queue:
            expected = self.model.redrive(most, self.now)
            assert self.run(self.queue.redrive(most, at_ms=self.now)) == expected

    @rule(really=st.integers(0, 5))
    def purge(self, really: int) -> None:
        if really == 0:
            self.model.settle(self.now)
            self.run(self.queue.settle(at_ms=self.now))
            expected = self.model.purge()
            assert self.run(self.queue.purge(at_ms=self.now)) == expected

    @rule(subscriber=st.sampled_from(SUBSCRIBERS), patterns=st.sampled_from([(), ("a.#",)]))
    def peek(self, subscriber: str, patterns: tuple[str, ...]) -> None:
        expected = self.model.peek(subscriber, 5, self.now, patterns=patterns)
        got = self.run(self.queue.peek(5, subscriber=subscriber, patterns=patterns, at_ms=self.now))
        if self.settings.queue_type != "delay":
            assert [_number(one.message_id) for one in got] == [unit.number for unit in expected]
        assert len(got) == len(expected)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "queue"):
            return
        stats = self.run(self.queue.statistics(at_ms=self.now))
        self.model.settle(self.now)
        assert self.model.conserved()
        assert (stats.ready, stats.delayed, stats.in_flight) == self.model.standing(self.now)
        counters = {name: value for name, value in stats.counters.items() if name not in ("processing_ms", "fired")}
        assert counters == self.model.counters
        ended = sum(counters[name] for name in ("acknowledged", "failed", "expired", "purged"))
        assert counters["units"] == stats.ready + stats.delayed + stats.in_flight + ended
        if self.settings.enable_dead_letter_queue:
            dead = self.run(Queue(self.store, self.queue.name + ".dlq").statistics(at_ms=self.now))
            assert dead.ready == len(self.model.dead)
        assert self._stored() == len({u.number for u in self.model.units})
        assert self.run(self.store.command("HLEN", self.queue._keys[8])) == len(self.model.casts)

    def _stored(self) -> int:
        """Messages that the store has and that are not done."""
        bodies = self.run(self.store.command("HVALS", self.queue._keys[1]))
        states = self.run(self.store.command("HVALS", self.queue._keys[6]))
        done = 0
        for held in states:
            many = int.from_bytes(held[2:4], "big")
            done += held[STATE_BYTES : STATE_BYTES + many].count(b"0")
        return sum(len(unpack(body).payloads) for body in bodies) - done


def _number(message_id: str) -> int:
    return int(message_id.rpartition("-")[2], 16)


def _each(claimed: Claimed) -> Iterator[tuple[Any, ...]]:
    """Its messages, each as the model has it, and behind what is held."""
    for message_id, held, payload in zip(claimed.message_ids, claimed.held, claimed.messages.payloads, strict=True):
        assert held_by(message_id, held.receipt) == held
        yield (
            held,
            claimed.subscriber,
            _number(message_id),
            held.first.partition("@")[2] or None,
            claimed.deliveries,
            held.number + held.place,
            claimed.lease_until_ms,
            claimed.extend_until_ms,
            payload,
            claimed.messages.topic,
        )


def _order_of_asking(leases: list[Lease], n: int) -> int:
    """Leases of one delivery are looked at together, when the first of them is."""

    def delivery(lease: Lease) -> tuple[str, int, str]:
        return lease.held.first, lease.held.number, lease.holder

    return min(k for k, lease in enumerate(leases) if delivery(lease) == delivery(leases[n]))


def _answer(answer: Sent | QueueError) -> Any:
    if isinstance(answer, Sent):
        number = _number(answer.message_id)
        return ("duplicate", number) if answer.duplicate else number
    return "full" if answer.code == "QUEUE_FULL" else ("quorum", answer.details["limit"])


@pytest.fixture
def machine(store_servers: StoreServers) -> type[Machine]:
    class Here(Machine):
        url = store_servers.url

    return Here


def run_machine(machine: type[Machine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_scripts_do_what_the_model_says(machine: type[Machine]) -> None:
    run_machine(machine, 60, 40)


def test_pages_and_parts_of_the_scripts_change_nothing(machine: type[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "CLAIM": [("PARCELS, BYTES_MAX = 32", "PARCELS, BYTES_MAX = 2"), ("PAGE = 64", "PAGE = 2")],
        "SEND": [("#flat, 4000", "#flat, 4"), ("n + 3999", "n + 3")],
        "ACKNOWLEDGE": [("PAGE = 500", "PAGE = 2")],
        "PEEK": [("PAGE = 64", "PAGE = 2")],
    }
    for name, changes in small.items():
        source = getattr(state, name).source.decode()
        for before, after in changes:
            assert before in source
            source = source.replace(before, after)
        monkeypatch.setattr(state, name, Script.of(source.encode(), f"test.{name}"))
    run_machine(machine, 60, 40)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_scripts_do_what_the_model_says_for_long(machine: type[Machine]) -> None:
    run_machine(machine, 800, 80)

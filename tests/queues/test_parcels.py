"""Messages that are alike and come together are one entry of the store, and nobody who receives them can tell."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mpreg.errors import QueueError
from mpreg.queues.message import Message, payloads_of
from mpreg.queues.parcels import PARCEL_BYTES_MAX, PARCEL_MAX, asked_of, outcomes_from, parcels_of
from mpreg.queues.records import NOTHING, Held, Lease, Packed, Sent, Taker, held_by
from mpreg.queues.settings import QueueSettings, backoff_ms
from mpreg.queues.state import Queue
from mpreg.store import Store

NAMES = itertools.count()
BEGIN = 1_000_000_000_000


def packed(payload: bytes = b"x", digest: str = "", **how: object) -> Packed:
    return Packed(Message(payload=payload, **how).check().meta(), payload, digest)  # type: ignore[arg-type]


def sizes(messages: list[Packed]) -> list[int]:
    return parcels_of(messages).many


def test_neighbours_that_differ_in_nothing_but_their_payloads_are_one() -> None:
    assert sizes([packed(b"1"), packed(b"2"), packed(b"three")]) == [3]


@pytest.mark.parametrize(
    "other",
    [
        packed(topic="other"),
        packed(priority=1),
        packed(group="g"),
        packed(delay_seconds=1.0),
        packed(message_ttl_seconds=1.0),
        packed(visibility_timeout_seconds=1.0),
        packed(max_retries=0),
        packed(headers={"a": "b"}),
        packed(encoding="msgpack"),
    ],
)
def test_what_differs_in_anything_else_is_another(other: Packed) -> None:
    assert sizes([packed(), other, packed()]) == [1, 1, 1]
    assert sizes([other, other]) == [2]


def test_broadcasts_and_what_is_deduplicated_are_always_alone() -> None:
    assert sizes([packed(delivery_guarantee="broadcast")] * 2) == [1, 1]
    assert sizes([packed(delivery_guarantee="quorum")] * 2) == [1, 1]
    assert sizes([packed(digest="a"), packed(digest="b"), packed(), packed()]) == [1, 1, 2]


def test_a_parcel_is_bounded_in_messages_and_bytes() -> None:
    assert sizes([packed()] * (2 * PARCEL_MAX + 1)) == [PARCEL_MAX, PARCEL_MAX, 1]
    half = packed(b"x" * (PARCEL_BYTES_MAX // 2))
    assert sizes([half] * 5) == [2, 2, 1]
    assert sizes([packed(b"x" * 3 * PARCEL_BYTES_MAX), packed()]) == [1, 1]


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=9))
def test_payloads_stand_in_a_body_one_behind_the_other(payloads: list[bytes]) -> None:
    packed_ = payloads_of(payloads)
    many = int.from_bytes(packed_[:2], "big")
    lengths = [int.from_bytes(packed_[2 + 4 * n : 6 + 4 * n], "big") for n in range(many)]
    assert (many, lengths) == (len(payloads), [len(one) for one in payloads])
    assert packed_[2 + 4 * many :] == b"".join(payloads)


@given(first=st.integers(1, 16**10 - 70_000), number=st.integers(1, 10**9), place=st.integers(0, 65_535))
def test_a_receipt_says_all_of_a_delivery(first: int, number: int, place: int) -> None:
    id_ = f"{first + place:010x}"
    receipt = f"{id_}/{number + place}/3/{place}"
    assert held_by(f"msg-abc-{id_}", receipt) == Held(receipt, f"msg-abc-{first:010x}", number, place, 3)


@pytest.mark.parametrize(
    "receipt",
    [
        "",
        "none",
        "0000000001/1/1",
        "0000000002/1/1/0",  # of another message
        "0000000001/0/1/0",
        "0000000001/1/1/1",  # there is none before it
        "0000000001/9/1/1",
        "0000000001@ann/9/1/1",  # a copy of a broadcast is always the first
        "0000000001/99999999999999999/1/0",
        "0000000001/1/1/99999",
        "0000000001/1/1/0\n",
        "0000000001/-1/1/0",
        "0000000001/१/1/0",
    ],
)
def test_a_receipt_that_can_not_be_is_nobodys(receipt: str) -> None:
    assert held_by("msg-abc-0000000001", receipt) is NOTHING


@given(st.from_regex(r"[0-9a-f]{10}(@.+)?/[0-9]+/[0-9]+/[0-9]+"), st.floats(0, 1))
def test_whatever_stands_in_a_receipt_does_no_harm(receipt: str, jitter: float) -> None:
    held = held_by(f"msg-{receipt[:10]}", receipt)
    assert 0 < backoff_ms(held.deliveries, jitter) <= 30_000


def test_outcomes_are_told_in_the_order_of_asking() -> None:
    def lease(first: str, place: int, verb: str = "acknowledge") -> Lease:
        return Lease(Held("", first, 1, place, 1), "me", verb)  # type: ignore[arg-type]

    asked = asked_of([lease("b", 1), lease("a", 0), lease("b", 0), lease("b", 2, "retry"), lease("a", 7)])
    assert [(one.held.first, one.verb, places) for one, places in asked.deliveries] == [
        ("b", "acknowledge", [1, 0]),
        ("a", "acknowledge", [0, 7]),
        ("b", "retry", [2]),
    ]
    assert outcomes_from(asked, [b"sa", b"ad", b"r"]) == [
        "stale",
        "acknowledged",
        "acknowledged",
        "retry",
        "dead_letter",
    ]


async def queue_with(store: Store, count: int, **settings: object) -> Queue:
    queue = Queue(store, f"parcel{next(NAMES)}")
    await queue.create(QueueSettings(**settings))  # type: ignore[arg-type]
    await queue.send([Message(payload=b"%d" % n) for n in range(count)], at_ms=BEGIN)
    return queue


async def take(queue: Queue, most: int, at_ms: int = BEGIN, by: str = "me") -> list[tuple[int, Held]]:
    batch = await queue.claim([Taker(by, most)], at_ms=at_ms)
    return [
        (int(payload), held)
        for one in batch.claimed
        for payload, held in zip(one.messages.payloads, one.held, strict=True)
    ]


async def entries(store: Store, queue: Queue) -> int:
    found: int = await store.command("HLEN", queue._keys[1])
    return found


@pytest.mark.anyio
async def test_many_messages_are_few_entries_and_come_out_in_order(store: Store) -> None:
    queue = await queue_with(store, 300)
    assert await entries(store, queue) == 3
    assert [number for number, _ in await take(queue, 500)] == list(range(300))


@pytest.mark.anyio
async def test_who_takes_a_few_does_not_have_the_rest_written_again_each_time(store: Store) -> None:
    queue = await queue_with(store, 100)
    assert [number for number, _ in await take(queue, 10)] == list(range(10))
    assert await entries(store, queue) == 10
    assert [number for number, _ in await take(queue, 10)] == list(range(10, 20))
    assert await entries(store, queue) == 10


@pytest.mark.anyio
async def test_a_message_that_is_extended_by_itself_does_not_keep_the_others(store: Store) -> None:
    queue = await queue_with(store, 3, default_visibility_timeout_seconds=10.0)
    taken = await take(queue, 3)
    (end,) = await queue.extend([Lease(taken[1][1], "me")], 60_000, at_ms=BEGIN + 1)
    assert end == BEGIN + 60_001
    assert [number for number, _ in await take(queue, 3, BEGIN + 10_000, "other")] == [0, 2]
    assert await queue.acknowledge([Lease(taken[1][1], "me")], at_ms=BEGIN + 20_000) == ["acknowledged"]


@pytest.mark.anyio
async def test_all_that_is_left_of_a_parcel_is_extended_as_one(store: Store) -> None:
    queue = await queue_with(store, 3, default_visibility_timeout_seconds=10.0)
    taken = [Lease(held, "me") for _, held in await take(queue, 3)]
    await queue.acknowledge(taken[:1], at_ms=BEGIN)
    assert await queue.extend(taken[1:], 60_000, at_ms=BEGIN) == [BEGIN + 60_000] * 2
    assert await queue.extend(taken[:1], 60_000, at_ms=BEGIN) == [0]
    assert await entries(store, queue) == 1


@pytest.mark.anyio
async def test_only_what_is_not_acknowledged_comes_again(store: Store) -> None:
    queue = await queue_with(store, 5, default_visibility_timeout_seconds=10.0)
    taken = dict(await take(queue, 5))
    await queue.acknowledge([Lease(taken[n], "me") for n in (0, 3)], at_ms=BEGIN)
    await queue.acknowledge([Lease(taken[1], "me", "retry")], at_ms=BEGIN)
    again = await take(queue, 5, BEGIN + 10_000)
    assert [(number, held.deliveries) for number, held in again] == [(1, 2), (2, 2), (4, 2)]
    stale = [Lease(taken[n], "me") for n in (2, 4)]
    assert await queue.acknowledge(stale, at_ms=BEGIN + 10_001) == ["stale", "stale"]
    leases = [Lease(held, "me") for _, held in again]
    assert await queue.acknowledge(leases, at_ms=BEGIN + 10_002) == ["acknowledged"] * 3
    assert await entries(store, queue) == 0


@pytest.mark.anyio
async def test_a_queue_that_is_nearly_full_takes_a_part(store: Store) -> None:
    queue = await queue_with(store, 7, max_size=10)
    answers = await queue.send([Message(payload=b"%d" % n) for n in range(7, 12)], at_ms=BEGIN)
    assert [isinstance(one, Sent) for one in answers] == [True, True, True, False, False]
    assert all(isinstance(one, QueueError) and one.code == "QUEUE_FULL" for one in answers[3:])
    assert [number for number, _ in await take(queue, 20)] == list(range(10))


@pytest.mark.anyio
async def test_a_fifo_group_gives_one_message_at_a_time_also_of_those_sent_together(store: Store) -> None:
    queue = await queue_with(store, 3, queue_type="fifo")
    for number in range(3):
        ((got, held),) = await take(queue, 10)
        assert got == number
        await queue.acknowledge([Lease(held, "me")], at_ms=BEGIN)

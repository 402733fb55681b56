"""How often the store is asked: no more than there is to say and to hear."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from tests.client.test_queues import node_on
from tests.store.servers import StoreServers

from mpreg import connect
from mpreg.errors import MpregError, StoreError
from mpreg.queues.delivery import Delivery
from mpreg.queues.parcels import Asked, outcomes_from
from mpreg.queues.records import Batch, Held, Lease, Outcome, Taker
from mpreg.queues.settling import SETTLE_MAX, Settling
from mpreg.queues.state import CLAIM_MAX, Queue

pytestmark = pytest.mark.anyio


async def test_an_acknowledgement_asks_for_more_only_if_something_was_left(
    store_servers: StoreServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = 0
    send_claim = Queue.send_claim

    def counted(queue: Queue, *args: Any, **how: Any) -> Any:
        nonlocal claims
        claims += 1
        return send_claim(queue, *args, **how)

    monkeypatch.setattr(Queue, "send_claim", counted)
    async with node_on(store_servers.url) as node, connect(node) as client:
        queue = client.queue("asking")
        await queue.create()
        async with queue.receive(prefetch=4) as messages:
            await queue.send_many(range(3))
            got = [await messages.next() for _ in range(3)]
            before = claims
            for message in got:
                assert await message.ack() == "acknowledged"
            assert claims == before
            await queue.send_many(range(9))
            for number in range(9):
                message = await messages.next()
                assert message.payload == number
                assert await message.ack() == "acknowledged"


class Calls:
    """The part of a queue that settling needs; each call is answered when the test says so."""

    name = "q"

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.futures: list[asyncio.Future[Any]] = []

    def send_acknowledge(self, asked: Asked) -> asyncio.Future[Any]:
        self.asked.append(asked)
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def outcomes(self, asked: Asked, reply: list[bytes]) -> list[Outcome]:
        return outcomes_from(asked, reply)

    async def answer(self) -> None:
        asked = self.asked[-1]
        self.futures[-1].set_result([b"a" * len(places) for _, places in asked.deliveries])
        await turn()


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def lease(number: int) -> Lease:
    return Lease(Held(str(number), f"{number:010x}", number, 0, 1), "me")


async def test_what_is_said_while_a_call_is_under_way_is_the_next_call() -> None:
    calls, heard = Calls(), []
    settling = Settling(calls)  # type: ignore[arg-type]
    for number in (1, 2):
        settling.add([lease(number)], heard.append)
    await turn()
    for number in (3, 4, 5):
        settling.add([lease(number)], heard.append)
        await turn()
    assert [asked.count for asked in calls.asked] == [2]
    await calls.answer()
    assert [asked.count for asked in calls.asked] == [2, 3]
    assert heard == [["acknowledged"]] * 2
    await calls.answer()
    assert heard == [["acknowledged"]] * 5
    assert len(settling) == 0
    await settling.drained()


async def test_an_answer_that_can_not_be_read_leaves_nothing_behind() -> None:
    calls, heard = Calls(), []
    settling = Settling(calls)  # type: ignore[arg-type]
    settling.add([lease(1)], heard.append)
    await turn()
    calls.futures[0].set_result([b"?"])
    await turn()
    assert [error.code for error in heard] == ["PROTOCOL_INTERNAL_ERROR"]
    await settling.drained()


async def test_a_call_that_fails_is_told_to_those_in_it_and_the_next_one_leaves() -> None:
    calls, heard = Calls(), []
    settling = Settling(calls)  # type: ignore[arg-type]
    settling.add([lease(1)], heard.append)
    await turn()
    settling.add([lease(2)], heard.append)
    error: MpregError = StoreError("STORE_CONNECTION_LOST", "gone", state_changed=None)
    calls.futures[0].set_exception(error)
    await turn()
    assert heard == [error]
    await calls.answer()
    assert heard == [error, ["acknowledged"]]


class Claims:
    """The part of a queue that delivery needs: nothing is ever there, or what is there can't be read."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.broken = False

    def send_claim(self, takers: list[Taker]) -> asyncio.Future[Any]:
        self.asked.append([taker.subscriber for taker in takers])
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result([])
        return future

    def claimed(self, takers: list[Taker], reply: list[Any]) -> Batch:
        if self.broken:
            raise struct.error("unpack requires a buffer")
        return Batch(1, 0, [])


class Waiting:
    """A consumer with room."""

    left = True

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most

    def taker(self, now: float) -> Taker:
        return Taker(self.name, self.most)


def delivery_of(claims: Claims, consumers: list[Waiting]) -> Delivery:
    delivery = Delivery(claims, Settling(Calls()), 300.0, lambda error: None)  # type: ignore[arg-type]
    delivery.consumers = list(consumers)  # type: ignore[arg-type]
    return delivery


async def test_more_subscribers_than_one_claim_serves_all_have_their_turn_and_then_there_is_rest() -> None:
    claims = Claims()
    delivery = delivery_of(claims, [Waiting(str(n), 10) for n in range(2 * CLAIM_MAX + 50)])
    for rounds in (1, 2):
        delivery.wake()
        for _ in range(40):
            await asyncio.sleep(0)
        assert len(claims.asked) == 3 * rounds
        assert {name for names in claims.asked[-3:] for name in names} == {one.name for one in delivery.consumers}  # type: ignore[attr-defined]
    await delivery.close()


async def test_a_claim_that_can_not_be_read_is_asked_for_again() -> None:
    claims = Claims()
    claims.broken = True
    delivery = delivery_of(claims, [Waiting("one", 10)])
    delivery.wake()
    await turn()
    claims.broken = False
    delivery.wake()
    await turn()
    assert len(claims.asked) == 2
    await delivery.close()


async def test_one_call_takes_a_bounded_number() -> None:
    calls, heard = Calls(), []
    settling = Settling(calls)  # type: ignore[arg-type]
    for _ in range(5):
        settling.add([lease(n + 1) for n in range(SETTLE_MAX // 2)], heard.append)
    await turn()
    while len(heard) < 5:
        await calls.answer()
    assert [asked.count for asked in calls.asked] == [SETTLE_MAX, SETTLE_MAX, SETTLE_MAX // 2]

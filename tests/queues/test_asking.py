"""How often the store is asked: no more than there is to say and to hear."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.test_queues import node_on
from tests.store.servers import StoreServers

from mpreg import connect
from mpreg.errors import MpregError, StoreError
from mpreg.queues.parcels import Asked, outcomes_from
from mpreg.queues.records import Held, Lease, Outcome
from mpreg.queues.settling import SETTLE_MAX, Settling
from mpreg.queues.state import Queue

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


async def test_one_call_takes_a_bounded_number() -> None:
    calls, heard = Calls(), []
    settling = Settling(calls)  # type: ignore[arg-type]
    for _ in range(5):
        settling.add([lease(n + 1) for n in range(SETTLE_MAX // 2)], heard.append)
    await turn()
    while len(heard) < 5:
        await calls.answer()
    assert [asked.count for asked in calls.asked] == [SETTLE_MAX, SETTLE_MAX, SETTLE_MAX // 2]

"""Many replies that arrive at once are told over several turns of the loop: in order, and all, whatever comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mpreg.errors import StoreError
from mpreg.store import StoreLimits
from mpreg.store.link import PARTS, REPLIES_A_TURN, Link

pytestmark = pytest.mark.anyio


class Owner:
    def __init__(self) -> None:
        self.lost: list[StoreError] = []
        self.pushes: list[Any] = []

    def on_error_reply(self, *_: Any) -> bool:
        return False

    def on_push(self, link: Link, push: list[Any]) -> None:
        self.pushes.append(push)

    def on_room(self) -> None: ...

    def on_lost(self, link: Link, error: StoreError, unsent: list[Any]) -> None:
        self.lost.append(error)


class Transport(asyncio.Transport):
    def write(self, data: Any) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def abort(self) -> None: ...


async def asked(callers: int) -> tuple[Link, Owner, list[asyncio.Future[Any]]]:
    owner = Owner()
    link = Link(owner, StoreLimits(), asyncio.get_running_loop())
    link.connection_made(Transport())
    futures = [link.send("INCR", "n") for _ in range(callers)]
    await asyncio.sleep(0)  # they leave at the end of the turn
    return link, owner, futures


def replies(callers: int) -> bytes:
    return b"".join(b":%d\r\n" % n for n in range(callers))


def told(futures: list[asyncio.Future[Any]]) -> list[int]:
    return [future.result() for future in futures if future.done()]


async def test_the_first_callers_go_on_before_the_last_are_told() -> None:
    link, _, futures = await asked(64)
    link.data_received(replies(64))
    turns = []
    while len(told(futures)) < 64:
        turns.append(len(told(futures)))
        await asyncio.sleep(0)
    assert turns == [16, 32, 48]
    assert told(futures) == list(range(64))


@pytest.mark.parametrize(("callers", "at_once"), [(1, 1), (REPLIES_A_TURN, REPLIES_A_TURN), (1000, 1000 // PARTS)])
async def test_few_are_told_at_once_and_of_many_a_part(callers: int, at_once: int) -> None:
    link, _, futures = await asked(callers)
    link.data_received(replies(callers))
    assert told(futures) == list(range(at_once))


async def test_what_comes_meanwhile_waits_for_its_turn() -> None:
    link, _, futures = await asked(100)
    data = replies(100)
    for at in range(0, len(data), 7):
        link.data_received(data[at : at + 7])
    while not futures[-1].done():
        assert told(futures) == list(range(len(told(futures))))
        await asyncio.sleep(0)
    assert told(futures) == list(range(100))


async def test_who_has_a_reply_when_the_connection_breaks_gets_it() -> None:
    link, owner, futures = await asked(64)
    link.data_received(replies(60))
    link.connection_lost(None)
    assert told(futures[:60]) == list(range(60))
    for future in futures[60:]:
        with pytest.raises(StoreError) as lost:
            await future
        assert lost.value.state_changed is None
    assert [error.code for error in owner.lost] == ["STORE_CONNECTION_LOST"]


async def test_a_link_that_is_given_up_tells_nobody_any_more() -> None:
    link, _, futures = await asked(64)
    link.data_received(replies(64))
    link.lose(StoreError("STORE_CLOSED", "closed"))
    await asyncio.sleep(0)
    assert told(futures[:16]) == list(range(16))
    for future in futures[16:]:
        with pytest.raises(StoreError, match="STORE_CLOSED"):
            await future


async def test_what_is_pushed_is_told_at_once() -> None:
    link, owner, _ = await asked(0)
    link.data_received(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n" * 100)
    assert len(owner.pushes) == 100

"""Idle links stay open and dead ones are noticed (R-W5), in virtual time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transport.ends import Recorder
from tests.transport.sockets import Wire

from mpreg.transport.heartbeat import UNANSWERED_MAX, Beat, Heartbeat
from mpreg.transport.peer import Peer
from mpreg.transport.socket_link import SocketLink
from mpreg.transport.tcp_frames import KEEP_ALIVE, TcpFraming
from mpreg.transport.websocket_frames import ListenerFraming
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT

PING = b"\x89\x00"


class Clock:
    """As much of an event loop as a link uses."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._loop = asyncio.new_event_loop()
        self._loop.close()

    def call_later(self, delay: float, call: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        self._count += 1
        handle = asyncio.TimerHandle(self.now + delay, call, args, self._loop)
        heapq.heappush(self._timers, (self.now + delay, self._count, handle))
        return handle

    def call_soon(self, call: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        return self.call_later(0, call, *args)

    def advance(self, to: float) -> None:
        while self._timers and self._timers[0][0] <= to:
            self.now, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                handle._run()
        self.now = to


def linked(framing: Any = None) -> tuple[Clock, Wire, SocketLink, Recorder]:
    clock: Any = Clock()
    wire, handler = Wire(), Recorder()
    link = SocketLink(clock, wire, framing or TcpFraming(CLIENT), Peer("tcp://peer"), CLIENT)
    link.open(handler.accept(link))
    return clock, wire, link, handler


@given(st.lists(st.booleans()))
def test_lost_is_exactly_two_pings_that_nothing_came_back_for(lives: list[bool]) -> None:
    heartbeat = Heartbeat()
    silent = 0
    for pings, alive in enumerate(lives):
        beat = heartbeat.step(alive)
        silent = 0 if alive or not pings else silent + 1
        assert (beat is Beat.LOST) is (silent >= UNANSWERED_MAX)
        if beat is Beat.LOST:
            return


@pytest.mark.parametrize(("framing", "ping"), [(TcpFraming(CLIENT), KEEP_ALIVE), (ListenerFraming(CLIENT), PING)])
def test_an_idle_link_is_pinged_every_20_s_and_stays_open_while_it_answers(framing: Any, ping: bytes) -> None:
    clock, wire, link, _ = linked(framing)
    for hour_s in range(0, 3600, 20):
        clock.advance(hour_s)
        link.heard = True
    assert wire.written == ping * 179
    assert wire.ended == ""


def test_a_silent_peer_is_cut_off_after_two_unanswered_pings() -> None:
    clock, wire, link, handler = linked()
    clock.advance(19.9)
    assert wire.written == b""
    clock.advance(59.9)
    assert wire.written == KEEP_ALIVE * 2
    assert wire.ended == ""
    clock.advance(60)
    assert wire.ended == "aborted"
    link.lost(None)
    assert handler.error is not None
    assert handler.error.code == "TRANSPORT_CONNECTION_LOST"
    clock.advance(1000)
    assert wire.written == KEEP_ALIVE * 2


def test_one_answer_in_time_is_enough() -> None:
    clock, wire, link, _ = linked()
    clock.advance(59)
    link.heard = True
    clock.advance(99)
    assert wire.ended == ""
    clock.advance(120)
    assert wire.ended


def test_a_peer_that_says_nothing_but_takes_bytes_is_alive() -> None:
    clock, wire, _, _ = linked()
    wire.buffered = 10_000
    for at in range(1, 10):
        clock.advance(at * 20)
        wire.buffered -= 1000
    assert wire.ended == ""


def test_a_peer_whose_bytes_we_do_not_read_is_not_called_silent() -> None:
    clock, wire, link, _ = linked()
    link.pause_reading()
    clock.advance(600)
    assert wire.ended == ""
    link.resume_reading()
    clock.advance(610)
    assert wire.ended == ""


def test_a_peer_that_does_not_take_the_rest_is_cut_off_some_time_after_close() -> None:
    clock, wire, link, handler = linked()
    wire.blocked = True
    wire.protocol = link
    link.send(b"{" + bytes(1_000_000), Encoding.JSON)
    link.send(b"{" + bytes(1_000_000), Encoding.JSON)
    clock.advance(1)
    link.close()
    clock.advance(5.9)
    assert wire.ended == ""
    clock.advance(6)
    assert wire.ended == "aborted"
    assert not handler.closed

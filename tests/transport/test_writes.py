"""What leaves a link: few writes a turn of the loop, bounded, and nothing while the peer does not read."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.transport.ends import Recorder
from tests.transport.sockets import REQUEST, Wire, masked

from mpreg.errors import MpregError
from mpreg.transport import Link, socket_link
from mpreg.transport.socket_link import BATCH_BYTES
from mpreg.transport.tcp import TcpProtocol
from mpreg.transport.websocket import WebSocketProtocol
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT, INTERNAL, Limits

pytestmark = pytest.mark.anyio
BATCH_MESSAGES = 16
BATCHES = msgspec.structs.replace(CLIENT, batch_messages=BATCH_MESSAGES)
JSON = Encoding.JSON


class Answering(Recorder):
    """Answers each message twice, at once."""

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        super().on_message(link, message, encoding)
        link.send(message, encoding)
        link.send(b"{}", encoding)


def opened(scheme: str, handler: Recorder, limits: Limits = CLIENT) -> tuple[Wire, Any]:
    """A listener's end on a wire without a socket, past its handshake; and what feeds bytes to it."""
    wire = Wire()
    if scheme == "tcp":
        tcp = TcpProtocol("tcp", handler.accept, limits)
        wire.set_protocol(tcp)
        tcp.connection_made(wire)
        return wire, tcp.data_received
    websocket = WebSocketProtocol("ws", handler.accept, limits)
    wire.set_protocol(websocket)
    websocket.connection_made(wire)
    websocket.feed(REQUEST)
    assert wire.written.startswith(b"HTTP/1.1 101 ")
    wire.writes.clear()
    return wire, websocket.feed


def incoming(scheme: str, message: bytes) -> bytes:
    return masked(1, message) if scheme == "ws" else len(message).to_bytes(4, "big") + message


def outgoing(scheme: str, message: bytes) -> bytes:
    return (bytes([0x81, len(message)]) if scheme == "ws" else len(message).to_bytes(4, "big")) + message


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_few_messages_of_one_turn_leave_in_one_write(scheme: str) -> None:
    handler = Recorder()
    wire, _ = opened(scheme, handler, BATCHES)
    few = range(BATCH_MESSAGES - 1)
    for at in few:
        handler.link.send(b"{%d}" % at, JSON)
    assert wire.writes == []
    await turns()
    assert wire.writes == [b"".join(outgoing(scheme, b"{%d}" % at) for at in few)]
    handler.link.send(b"{}", JSON)
    await turns()
    assert wire.writes[1:] == [outgoing(scheme, b"{}")]


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_of_many_messages_of_one_turn_the_first_leave_before_the_last_are_there(scheme: str) -> None:
    handler = Recorder()
    wire, _ = opened(scheme, handler, BATCHES)
    many = [b"{%d}" % at for at in range(3 * BATCH_MESSAGES + 1)]
    for at, message in enumerate(many):
        handler.link.send(message, JSON)
        assert len(wire.writes) == (at + 1) // BATCH_MESSAGES
    await turns()
    assert len(wire.writes) == 4
    assert wire.written == b"".join(outgoing(scheme, message) for message in many)


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_a_batch_that_the_socket_does_not_take_waits_and_order_is_kept(scheme: str) -> None:
    handler = Recorder()
    wire, _ = opened(scheme, handler, BATCHES)
    handler.link.pause_writing()  # type: ignore[attr-defined]
    many = [b"{%d}" % at for at in range(3 * BATCH_MESSAGES)]
    for message in many:
        handler.link.send(message, JSON)
    await turns()
    assert wire.writes == []
    handler.link.resume_writing()  # type: ignore[attr-defined]
    assert wire.writes == [b"".join(outgoing(scheme, message) for message in many)]


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_answers_to_all_messages_of_one_read_leave_before_the_read_ends(scheme: str) -> None:
    wire, feed = opened(scheme, Answering(), BATCHES)
    few = range(BATCH_MESSAGES // 2 - 1)
    feed(b"".join(incoming(scheme, b"{%d}" % at) for at in few))
    assert wire.writes == [b"".join(outgoing(scheme, b"{%d}" % at) + outgoing(scheme, b"{}") for at in few)]
    await turns()
    assert len(wire.writes) == 1


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_the_first_answers_to_many_messages_of_one_read_leave_before_the_last_are_handled(scheme: str) -> None:
    class Watching(Answering):
        def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
            super().on_message(link, message, encoding)
            written.append(len(wire.writes))

    written: list[int] = []
    wire, feed = opened(scheme, Watching(), BATCHES)
    feed(b"".join(incoming(scheme, b"{%d}" % at) for at in range(50)))
    assert written == [2 * (at + 1) // BATCH_MESSAGES for at in range(50)]
    assert wire.written == b"".join(outgoing(scheme, b"{%d}" % at) + outgoing(scheme, b"{}") for at in range(50))


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_while_the_socket_is_full_messages_wait_here_and_leave_in_order(scheme: str) -> None:
    handler = Recorder()
    wire, _ = opened(scheme, handler)
    wire.blocked = True
    sent = [b"{" + bytes(50_000) for _ in range(10)] + [b"{" + bytes(3_000_000)]
    for message in sent:
        handler.link.send(message, JSON)
        await turns()
    assert handler.link.waiting >= sum(map(len, sent))
    assert wire.buffered <= 2 * BATCH_BYTES
    while handler.link.waiting:
        wire.buffered = 0
        handler.link.resume_writing()  # type: ignore[attr-defined]
        assert wire.buffered <= 2 * max(BATCH_BYTES, 3_000_000)
    stream = wire.written
    for message in sent:
        assert message in stream
        stream = stream[stream.index(message) + len(message) :]


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_a_streamed_message_is_cut_only_as_the_socket_takes_it(scheme: str) -> None:
    handler = Recorder()
    limits = msgspec.structs.replace(CLIENT, frame_bytes_max=1_000_000)
    wire, _ = opened(scheme, handler, limits)
    wire.blocked = True
    handler.link.send(b"{" + bytes(50_000_000), JSON)
    await turns()
    assert wire.buffered < 3 * limits.chunk_bytes
    assert handler.link.waiting >= 50_000_000


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_heap_of_messages_over_the_limit_closes_the_link_but_one_message_may_be_as_long(
    scheme: str, size: int
) -> None:
    handler = Recorder()
    limits = msgspec.structs.replace(CLIENT, waiting_bytes_max=size)
    wire, _ = opened(scheme, handler, limits)
    wire.blocked = True
    handler.link.send(b"{" + bytes(size), JSON)
    assert wire.ended == ""
    handler.link.send(b"{}", JSON)
    assert wire.ended == "aborted"
    assert handler.link.closed
    wire.protocol.connection_lost(None)
    assert handler.error is not None
    assert handler.error.code == "RESOURCE_SLOW_CONSUMER"


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_a_closed_link_drops_what_is_sent_and_holds_nothing(scheme: str) -> None:
    handler = Recorder()
    wire, _ = opened(scheme, handler)
    link = handler.link
    wire.protocol.connection_lost(None)
    link.send(b"{" + bytes(1_000_000), JSON)
    link.close(MpregError("X", "late"))
    link.pause_reading()
    link.resume_reading()
    await link.wait_closed()
    await turns()
    assert wire.writes == []
    assert link.waiting == 0
    assert handler.error is not None
    assert handler.error.code == "TRANSPORT_CONNECTION_LOST"


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_a_link_that_has_half_of_what_may_wait_takes_no_new_call(scheme: str) -> None:
    handler = Recorder()
    limits = msgspec.structs.replace(CLIENT, waiting_bytes_max=4_000_000)
    wire, _ = opened(scheme, handler, limits)
    link = handler.link
    wire.blocked = True
    while link.waiting <= 2_000_000:
        assert link.takes_more
        link.send(b"{" + bytes(50_000), JSON)
        await turns()
    assert not link.takes_more
    wire.buffered = 0
    link.resume_writing()  # type: ignore[attr-defined]
    wire.buffered = 0
    assert link.takes_more
    wire.protocol.connection_lost(None)
    assert not link.takes_more


async def test_a_link_to_a_node_has_the_batches_of_a_node() -> None:
    handler = Recorder()
    wire, _ = opened("tcp", handler, BATCHES)
    handler.link.restrict(msgspec.structs.replace(INTERNAL, batch_messages=2))
    for _ in range(5):
        handler.link.send(b"{}", JSON)
    assert len(wire.writes) == 2


class Passing(Recorder):
    """Passes each message on to another link."""

    def __init__(self, to: Recorder) -> None:
        super().__init__()
        self.to = to

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        self.to.link.send(message, encoding)


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_what_one_link_brings_for_another_leaves_when_it_was_read(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Recorder()
    wire, _ = opened(scheme, far)
    _, feed = opened("tcp", Passing(far))
    monkeypatch.setattr(socket_link, "BUSY_S", 0)
    for reads in (1, 2):
        feed(incoming("tcp", b"{1}") + incoming("tcp", b"{2}"))
        assert wire.writes == [outgoing(scheme, b"{1}") + outgoing(scheme, b"{2}")] * reads


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_what_many_links_bring_for_another_in_one_turn_shares_a_write(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Recorder()
    wire, _ = opened(scheme, far)
    feeds = [opened("tcp", Passing(far))[1] for _ in range(5)]
    monkeypatch.setattr(socket_link, "BUSY_S", 1000)
    for feed in feeds:
        feed(incoming("tcp", b"{}"))
    assert wire.writes == [outgoing(scheme, b"{}")]
    await turns()
    assert wire.writes[1:] == [outgoing(scheme, b"{}") * 4]

"""The contract of a link, the same on every transport."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.transport.certificates import authority
from tests.transport.ends import SMALL, Echo, Recorder, connected, listening

from mpreg.errors import ResourceError, TransportError
from mpreg.transport import Link, TlsFiles, dial, memory_pair
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT, Limits

pytestmark = pytest.mark.anyio

SOCKETS = ("ws", "tcp", "wss", "tcps")
EVERY = (*SOCKETS, "memory")
JSON, MSGPACK = Encoding.JSON, Encoding.MSGPACK


@asynccontextmanager
async def pair(
    scheme: str, *, limits: Limits = CLIENT, make: Any = Echo, client_limits: Limits | None = None
) -> AsyncIterator[tuple[Recorder, Recorder]]:
    if scheme == "memory":
        a, b = Recorder(), make()
        memory_pair(a.accept, b.accept, limits=limits)
        yield a, b
        a.link.close()
        await a.link.wait_closed()
        return
    tls = client_tls = None
    if scheme in ("wss", "tcps"):
        cert = authority().issue("node")
        tls = TlsFiles(cert=cert.cert, key=cert.key)
        client_tls = TlsFiles(ca=authority().ca)
    async with connected(
        scheme, limits=limits, client_limits=client_limits, tls=tls, client_tls=client_tls, make=make
    ) as ends:
        yield ends


@pytest.mark.parametrize("scheme", EVERY)
@pytest.mark.parametrize("size", [0, 1, 124, 125, 126, 65535, 65536, 65537, 300_000])
async def test_messages_of_any_size_come_back_whole_and_in_their_encoding(scheme: str, size: int) -> None:
    async with pair(scheme) as (client, _):
        for message, encoding in ((b"{" + bytes(size), JSON), (b"\x81" + bytes(size), MSGPACK)):
            client.link.send(message, encoding)
            assert await client.next() == (message, encoding)


class Handing(Recorder):
    """Hands its link over with the first message."""

    def __init__(self) -> None:
        super().__init__()
        self.next_one = Recorder()

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        super().on_message(link, message, encoding)
        link.divert(self.next_one)


@pytest.mark.parametrize("scheme", EVERY)
async def test_a_link_that_is_handed_over_tells_the_new_handler_from_the_next_message_on(scheme: str) -> None:
    async with pair(scheme, make=Handing) as (client, first):
        assert isinstance(first, Handing)
        for number in range(3):  # they come in one read
            client.link.send(b"{%d}" % number, JSON)
        await first.next_one.until(lambda it: len(it.messages) == 2)
        assert first.messages == [(b"{0}", JSON)]
        assert first.next_one.messages == [(b"{1}", JSON), (b"{2}", JSON)]
        client.link.close()
        await first.next_one.until(lambda it: it.closed)
        assert not first.closed


@pytest.mark.parametrize("scheme", EVERY)
async def test_order_is_kept_among_short_long_and_streamed_messages(scheme: str) -> None:
    sent = [b"{" + bytes([at]) * size for at, size in enumerate((3, 90_000, 10, 3_000_000, 0, 1_000_001, 60_000, 5))]
    limits = msgspec.structs.replace(CLIENT, frame_bytes_max=1_000_000)
    async with pair(scheme, limits=limits) as (client, _):
        for message in sent:
            client.link.send(message, JSON)
        await client.until(lambda me: len(me.messages) == len(sent))
        assert [message for message, _ in client.messages] == sent


@pytest.mark.parametrize("scheme", EVERY)
async def test_a_message_over_the_limit_is_refused_where_it_is_sent(scheme: str) -> None:
    async with pair(scheme, limits=SMALL) as (client, _):
        client.link.send(b"{" + bytes(19_999), JSON)
        with pytest.raises(ResourceError, match="20000") as refused:
            client.link.send(b"{" + bytes(20_000), JSON)
        assert refused.value.code == "RESOURCE_MESSAGE_TOO_LARGE"
        assert refused.value.details == {"limit": "message_bytes_max", "message_bytes_max": 20_000}
        assert await client.next() == (b"{" + bytes(19_999), JSON)


@pytest.mark.parametrize("scheme", SOCKETS)
async def test_a_message_over_the_listeners_limit_is_refused_and_the_link_goes_on(scheme: str) -> None:
    async with pair(scheme, limits=SMALL, client_limits=msgspec.structs.replace(SMALL, message_bytes_max=10**6)) as (
        client,
        server,
    ):
        client.link.send(b"{" + bytes(100_000), JSON)
        client.link.send(b"{}", JSON)
        answer, _ = await client.next()
        assert msgspec.json.decode(answer) == {
            "code": "RESOURCE_MESSAGE_TOO_LARGE",
            "limit": "message_bytes_max",
            "message_bytes_max": 20_000,
        }
        assert await client.next() == (b"{}", JSON)
        assert len(server.refused) == 1


@pytest.mark.parametrize("scheme", SOCKETS)
async def test_a_frame_over_the_limit_is_answered_with_why_before_the_link_closes(scheme: str) -> None:
    wide = msgspec.structs.replace(SMALL, frame_bytes_max=10**6, message_bytes_max=10**6, chunk_bytes=500_000)
    async with pair(scheme, limits=SMALL, client_limits=wide) as (client, server):
        client.link.send(b"{}", JSON)
        client.link.send(b"{" + bytes(400_000), JSON)
        client.link.send(b"{}", JSON)
        assert await client.next() == (b"{}", JSON)
        answer, _ = await client.next()
        assert msgspec.json.decode(answer) == {
            "code": "RESOURCE_FRAME_TOO_LARGE",
            "limit": "frame_bytes_max",
            "frame_bytes_max": 4000,
        }
        await client.gone()
        error = await server.gone()
        assert error is not None
        assert error.code == "RESOURCE_FRAME_TOO_LARGE"
        assert not client.messages


@pytest.mark.parametrize("scheme", EVERY)
async def test_close_writes_what_waits_first(scheme: str) -> None:
    async with pair(scheme, make=Recorder) as (client, server):
        for at in range(100):
            client.link.send(b"{%d" % at, JSON)
        client.link.send(b"{" + bytes(2_000_000), JSON)
        client.link.close()
        client.link.send(b"{too late}", JSON)
        assert client.link.closed
        await client.link.wait_closed()
        assert await server.gone() is None
        assert await client.gone() is None
        assert len(server.messages) == 101


@pytest.mark.parametrize("scheme", EVERY)
async def test_the_closing_side_is_told_the_error_that_it_closed_with(scheme: str) -> None:
    async with pair(scheme) as (client, server):
        error = ResourceError("RESOURCE_EXHAUSTED", "too much")
        server.link.close(error)
        assert await server.gone() is error
        await client.gone()


async def test_a_websocket_peer_is_told_why_the_link_was_closed() -> None:
    async with pair("ws") as (client, server):
        server.link.close(ResourceError("RESOURCE_EXHAUSTED", "too much"))
        error = await client.gone()
        assert error is not None
        assert "1013: too much [RESOURCE_EXHAUSTED]" in error.message


@pytest.mark.parametrize("scheme", EVERY)
async def test_accept_may_close_the_link_at_once(scheme: str) -> None:
    class Closed(Recorder):
        def accept(self, link: Link) -> Recorder:
            link.close(ResourceError("RESOURCE_EXHAUSTED", "full"))
            return super().accept(link)

    async with pair(scheme, make=Closed) as (client, server):
        client.link.send(b"{}", JSON)
        await client.gone()
        error = await server.gone()
        assert error is not None
        assert error.code == "RESOURCE_EXHAUSTED"
        assert not server.messages


@pytest.mark.parametrize("scheme", EVERY)
async def test_nothing_is_delivered_after_a_handler_closes_its_link(scheme: str) -> None:
    class Once(Recorder):
        def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
            super().on_message(link, message, encoding)
            link.close()

    async with pair(scheme, make=Once) as (client, server):
        for _ in range(5):
            client.link.send(b"{}", JSON)
        await server.gone()
        await client.gone()
        assert len(server.messages) == 1


@pytest.mark.parametrize("scheme", SOCKETS)
async def test_a_handler_that_raises_ends_its_own_link_only(scheme: str, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
            raise RuntimeError("broken")

    async with pair(scheme, make=Broken) as (client, server):
        client.link.send(b"{}", JSON)
        await client.gone()
        error = await server.gone()
        assert error is not None
        assert error.code == "PROTOCOL_INTERNAL_ERROR"
    assert "broken" in caplog.text


@pytest.mark.parametrize("scheme", EVERY)
async def test_while_reading_is_paused_nothing_comes_and_then_everything(scheme: str) -> None:
    async with pair(scheme, make=Recorder) as (client, server):
        client.link.send(b"{1}", JSON)
        await server.next()
        server.link.pause_reading()
        server.link.pause_reading()
        size = 4_000_000
        for _ in range(8):
            client.link.send(b"{" + bytes(size), JSON)
        # The peer's socket is full, so the rest waits here.
        async with asyncio.timeout(20):
            before = -1
            while client.link.waiting != before:
                before = client.link.waiting
                await asyncio.sleep(0)
        assert client.link.waiting > size
        server.link.resume_reading()
        await server.until(lambda me: len(me.messages) == 8)
        assert client.link.waiting == 0


@pytest.mark.parametrize("scheme", EVERY)
async def test_a_peer_that_does_not_read_is_cut_off_and_others_notice_nothing(scheme: str) -> None:
    limits = msgspec.structs.replace(CLIENT, waiting_bytes_max=10_000_000)
    async with pair(scheme, limits=limits, make=Recorder) as (client, server), pair(scheme) as (other, _):
        server.link.pause_reading()
        for _ in range(60):
            client.link.send(b"{" + bytes(1_000_000), JSON)
            await asyncio.sleep(0)
            assert client.link.waiting <= 11_000_000
        error = await client.gone()
        assert error is not None
        assert error.code == "RESOURCE_SLOW_CONSUMER"
        assert error.details["waiting_bytes_max"] == 10_000_000
        other.link.send(b"{}", JSON)
        assert await other.next() == (b"{}", JSON)


async def test_a_listener_sees_the_request_of_a_websocket() -> None:
    async with listening("ws") as (listener, echoes):
        client = Recorder()
        url = listener.url + "/chat?room=1"
        link = await dial(url, client.accept, headers={"Authorization": "Bearer x", "X-API-Key": "k"})
        server = await echoes.first()
        assert server.link.peer.headers["authorization"] == "Bearer x"
        assert server.link.peer.headers["x-api-key"] == "k"
        assert server.link.peer.path == "/chat?room=1"
        assert server.link.url.startswith("ws://127.0.0.1:")
        link.close()


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_a_closed_listener_accepts_nobody_and_keeps_its_links(scheme: str) -> None:
    async with connected(scheme) as (client, _), listening(scheme) as (listener, _):
        kept = Recorder()
        link = await dial(listener.url, kept.accept)
        listener.close()
        await listener.wait_closed()
        with pytest.raises(TransportError) as refused:
            await dial(listener.url, Recorder().accept)
        assert refused.value.code == "TRANSPORT_CONNECTION_REFUSED"
        link.send(b"{}", JSON)
        assert await kept.next() == (b"{}", JSON)
        assert not client.closed
        link.close()


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_an_address_in_use_is_named(scheme: str) -> None:
    from mpreg.transport import listen

    async with listening(scheme) as (listener, _):
        with pytest.raises(TransportError, match=listener.url):
            await listen(listener.url, Recorder().accept)


@pytest.mark.parametrize("scheme", SOCKETS)
async def test_90_mb_pass_both_ways_and_101_are_refused(scheme: str) -> None:
    async with pair(scheme) as (client, _):
        message = b"{" + bytes(90_000_000)
        client.link.send(message, JSON)
        assert await client.next() == (message, JSON)
        with pytest.raises(ResourceError) as refused:
            client.link.send(b"{" + bytes(101_000_000), JSON)
        assert refused.value.details["message_bytes_max"] == 100_000_000


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_a_long_message_takes_a_small_multiple_of_its_length(scheme: str) -> None:
    size = 90_000_000
    async with pair(scheme, make=Recorder) as (client, server):
        tracemalloc.start()
        try:
            client.link.send(b"{" + bytes(size), JSON)
            await server.until(lambda me: me.messages)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Both ends are in this process: what is sent, what has come in parts, and the whole made of them.
        assert peak < 3.2 * size


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_a_message_that_grows_over_the_limit_takes_no_more_than_the_limit(scheme: str) -> None:
    limits = msgspec.structs.replace(CLIENT, message_bytes_max=10_000_000, frame_bytes_max=1_000_000)
    wide = msgspec.structs.replace(limits, message_bytes_max=100_000_000)
    async with pair(scheme, limits=limits, client_limits=wide, make=Recorder) as (client, server):
        message = b"{" + bytes(90_000_000)
        tracemalloc.start()
        try:
            client.link.send(message, JSON)
            client.link.send(b"{}", JSON)
            assert await server.next() == (b"{}", JSON)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert server.refused[0].code == "RESOURCE_MESSAGE_TOO_LARGE"
        assert peak < 25_000_000

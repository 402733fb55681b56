"""What no proper client sends. The sender is told what is wrong; the listener lives, other links notice nothing, and
nobody's log fills up."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transport.certificates import authority
from tests.transport.ends import SMALL, Echo, Recorder, connected, listening
from tests.transport.sockets import REQUEST, Wire, masked, raw, raw_websocket, read_frame

from mpreg.errors import MpregError, TransportError
from mpreg.transport import TlsFiles, dial
from mpreg.transport.websocket import WebSocketProtocol
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT

pytestmark = pytest.mark.anyio
JSON = Encoding.JSON
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO)
    yield
    assert caplog.text == ""


@asynccontextmanager
async def undisturbed(scheme: str, **options: Any) -> AsyncIterator[str]:
    """A listener with another link to it, which works before and after."""
    async with listening(scheme, **options) as (listener, _):
        ca = TlsFiles(ca=authority().ca) if options.get("tls") else None
        other = Recorder()
        link = await dial(listener.url, other.accept, tls=ca)
        link.send(b"{1}", JSON)
        assert await other.next() == (b"{1}", JSON)
        yield listener.url
        link.send(b"{2}", JSON)
        assert await other.next() == (b"{2}", JSON)
        again = Recorder()
        fresh = await dial(listener.url, again.accept, tls=ca)
        fresh.send(b"{3}", JSON)
        assert await again.next() == (b"{3}", JSON)
        for each in (link, fresh):
            each.close()
            await each.wait_closed()


def files() -> TlsFiles:
    pair = authority().issue("node")
    return TlsFiles(cert=pair.cert, key=pair.key)


@pytest.mark.parametrize("length", [b"\x00\x00\x0f\xa1", b"\xff\xff\xff\xff", b"\x80\x00\x00\x02"])
async def test_a_tcp_length_over_the_limit_is_answered_then_the_socket_is_closed(quiet: None, length: bytes) -> None:
    async with undisturbed("tcp", limits=SMALL) as url, raw(url) as (reader, writer):
        writer.write(length + b"{" * 1000)
        size = int.from_bytes(await reader.readexactly(4), "big")
        assert msgspec.json.decode(await reader.readexactly(size)) == {
            "code": "RESOURCE_FRAME_TOO_LARGE",
            "limit": "frame_bytes_max",
            "frame_bytes_max": 4000,
        }
        writer.write(bytes(3_000_000))  # goes nowhere, and hurts nobody
        assert await reader.read() == b""


@pytest.mark.parametrize("half", [b"\x00", b"\x00\x00\x00", b"\x00\x00\x00\x05{", b"\x00\x00\x00\x05\xc1\x01{}"])
async def test_half_a_frame_and_then_nothing_ends_as_a_lost_connection(quiet: None, half: bytes) -> None:
    async with listening("tcp") as (listener, echoes), raw(listener.url) as (_, writer):
        writer.write(half)
        writer.write_eof()
        error = await (await echoes.first()).gone()
        assert error is not None
        assert error.code == "TRANSPORT_CONNECTION_LOST"


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
async def test_a_peer_that_vanishes_is_a_lost_connection(quiet: None, scheme: str) -> None:
    async with connected(scheme) as (client, server):
        client.link._transport.abort()  # type: ignore[attr-defined]
        for end in (client, server):
            error = await end.gone()
            if end is server and scheme == "tcp" and error is None:
                continue  # between two messages a TCP peer needs no goodbye
            assert error is not None
            assert error.code == "TRANSPORT_CONNECTION_LOST"


GARBAGE = {
    "unmasked": (masked(TEXT, b"{}", mask=False), 1002, "PROTOCOL_FRAMING_LOST"),
    "an opcode that means nothing": (masked(3, b"{}"), 1002, "PROTOCOL_FRAMING_LOST"),
    "reserved bits": (masked(TEXT | 0x40, b"{}"), 1002, "PROTOCOL_FRAMING_LOST"),
    "a ping in fragments": (masked(PING, b"", fin=False), 1002, "PROTOCOL_FRAMING_LOST"),
    "a ping that is too long": (masked(PING, bytes(126)), 1002, "PROTOCOL_FRAMING_LOST"),
    "a fragment of nothing": (masked(0, b"{}"), 1002, "PROTOCOL_FRAMING_LOST"),
    "a message inside another": (masked(TEXT, b"{", fin=False) + masked(TEXT, b"}"), 1002, "PROTOCOL_FRAMING_LOST"),
    "a frame over the limit": (masked(TEXT, bytes(4001)), 1009, "RESOURCE_FRAME_TOO_LARGE"),
    "a frame of 2 ** 62 bytes": (b"\x81\xff\x40" + bytes(11), 1009, "RESOURCE_FRAME_TOO_LARGE"),
    "a frame of 2 ** 63 bytes": (b"\x81\xff\x80" + bytes(11), 1002, "PROTOCOL_FRAMING_LOST"),
}


@pytest.mark.parametrize("what", GARBAGE)
async def test_a_websocket_that_can_not_be_read_is_told_why_then_closed(quiet: None, what: str) -> None:
    garbage, close_code, code = GARBAGE[what]
    async with undisturbed("ws", limits=SMALL) as url, raw_websocket(url) as (reader, writer):
        writer.write(masked(TEXT, b"{1}") + garbage + masked(TEXT, b"{2}"))
        assert await read_frame(reader) == (TEXT, b"{1}")
        opcode, answer = await read_frame(reader)
        assert opcode == TEXT
        assert msgspec.json.decode(answer)["code"] == code
        opcode, close = await read_frame(reader)
        assert opcode == CLOSE
        assert int.from_bytes(close[:2], "big") == close_code
        writer.write(bytes(1_000_000))
        assert await reader.read() == b""


async def test_a_fragmented_message_over_the_limit_is_refused_and_the_link_goes_on(quiet: None) -> None:
    async with undisturbed("ws", limits=SMALL) as url, raw_websocket(url) as (reader, writer):
        writer.write(masked(TEXT, b"{" + bytes(3999), fin=False))
        for at in range(9):
            writer.write(masked(0, bytes(4000), fin=at == 8) + masked(PING, b"%d" % at))
        writer.write(masked(TEXT, b"{}"))
        seen = [await read_frame(reader) for _ in range(11)]
        pongs = [payload for opcode, payload in seen if opcode == PONG]
        texts = [payload for opcode, payload in seen if opcode == TEXT]
        assert pongs == [b"%d" % at for at in range(9)]
        assert msgspec.json.decode(texts[0])["code"] == "RESOURCE_MESSAGE_TOO_LARGE"
        assert texts[1] == b"{}"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"426"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", b"400"),
        (b"GET / HTTP/1.0\r\n\r\n", b"400"),
        (b"GET /\r\n\r\n", b"400"),
        (REQUEST.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"short"), b"400"),
        (REQUEST.replace(b"Version: 13", b"Version: 99"), b"400"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 4000 + b"\r\n", b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        (b"\x00\x00\x00\x02{}", b"400"),
        (b"{}", b"400"),
    ],
)
async def test_what_is_no_websocket_request_gets_an_http_error(quiet: None, request_: bytes, status: bytes) -> None:
    async with undisturbed("ws") as url, raw(url) as (reader, writer):
        writer.write(request_)
        assert (await reader.readline()).startswith(b"HTTP/1.1 " + status)
        await reader.read()


async def test_a_request_that_does_not_end_is_turned_away_in_time(quiet: None) -> None:
    limits = msgspec.structs.replace(CLIENT, handshake_timeout_s=0.05)
    async with listening("ws", limits=limits) as (listener, _), raw(listener.url) as (reader, writer):
        writer.write(REQUEST[:-2])
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        await reader.read()


async def test_a_request_in_single_bytes_is_one_request(quiet: None) -> None:
    async with undisturbed("ws") as url, raw(url) as (reader, writer):
        for byte in REQUEST:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize(("scheme", "secure"), [("ws", "wss"), ("tcp", "tcps")])
async def test_tls_against_a_plain_port_says_so(quiet: None, scheme: str, secure: str) -> None:
    async with undisturbed(scheme) as url:
        with pytest.raises(MpregError) as refused:
            await dial(url.replace(scheme, secure), Recorder().accept, tls=TlsFiles(ca=authority().ca))
        assert refused.value.code in ("TRANSPORT_TLS", "TRANSPORT_CONNECTION_REFUSED")


@pytest.mark.parametrize(("scheme", "secure"), [("ws", "wss"), ("tcp", "tcps")])
async def test_a_plain_client_at_a_tls_port_is_hung_up_on(quiet: None, scheme: str, secure: str) -> None:
    async with undisturbed(secure, tls=files()) as url:
        client = Recorder()
        if scheme == "ws":
            with pytest.raises(TransportError):
                await dial(url.replace(secure, scheme), client.accept)
        else:
            link = await dial(url.replace(secure, scheme), client.accept)
            link.send(b"{}", JSON)
            await client.gone()
        assert not client.messages


async def test_a_tcp_client_at_a_websocket_port_and_the_other_way_round(quiet: None) -> None:
    async with undisturbed("ws") as url:
        client = Recorder()
        link = await dial(url.replace("ws", "tcp"), client.accept)
        link.send(b"{}", JSON)
        await client.gone()
        assert client.refused[0].code == "PROTOCOL_FRAMING_LOST"
        assert "HTTP" in client.refused[0].message
    async with undisturbed("tcp") as url:
        with pytest.raises(MpregError) as refused:
            await dial(url.replace("tcp", "ws"), Recorder().accept)
        assert refused.value.prefix == "TRANSPORT_"


async def test_a_peer_that_never_finishes_its_handshake_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(MpregError) as refused:
            await dial(f"ws://127.0.0.1:{port}", Recorder().accept, timeout_s=0.05)
    assert refused.value.code == "TIMEOUT_CONNECT"


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "ws://",
        "tcp://x:99999",
        "tcp://x/path",
        "ws://[::1",
        "",
        "ws://x#f",
        "ws://user:secret@x",
        "ws://..",
        f"tcp://{'x' * 64}.example",
        "ws://x/a b",
        "ws://x/é",
    ],
)
async def test_an_address_that_can_not_be_read_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(MpregError) as refused:
        await dial(url, Recorder().accept)
    assert refused.value.code == "TRANSPORT_INVALID_URL"
    assert "secret" not in str(refused.value) + repr(refused.value.details)


@pytest.mark.parametrize(
    "headers", [{"X": "a\r\nEvil: secret"}, {"X\r\nEvil": "a"}, {"": "a"}, {"X": "é"}, {"X:": "a"}]
)
async def test_a_header_that_could_smuggle_in_another_one_is_not_sent(headers: dict[str, str]) -> None:
    async with listening("ws") as (listener, _):
        with pytest.raises(MpregError) as refused:
            await dial(listener.url, Recorder().accept, headers=headers)
    assert refused.value.code == "TRANSPORT_INVALID_URL"
    assert "secret" not in str(refused.value) + repr(refused.value.details)


# Any bytes after the handshake, in any portions.

frames = st.one_of(
    st.builds(
        masked, st.sampled_from([0, 1, 2, 8, 9, 10]), st.binary(max_size=300), fin=st.booleans(), mask=st.booleans()
    ),
    st.builds(masked, st.sampled_from([1, 2, 9]), st.binary(max_size=200)),
    st.binary(max_size=20),
)


def events(stream: bytes, cuts: list[int]) -> tuple[list[Any], bytes]:
    """What a handler hears of a stream that comes in these portions, and what is answered."""

    async def run() -> tuple[list[Any], bytes]:
        echo, wire = Echo(), Wire()
        seen: list[Any] = []

        class Heard(Recorder):
            def on_message(self, link: Any, message: bytes, encoding: Encoding) -> None:
                seen.append((message, encoding))
                echo.on_message(link, message, encoding)

            def on_refused(self, link: Any, error: MpregError) -> None:
                seen.append(error.code)
                link.send(b'{"refused":1}', JSON)

        protocol = WebSocketProtocol("ws", Heard().accept, SMALL)
        wire.set_protocol(protocol)
        protocol.connection_made(wire)
        protocol.feed(REQUEST)
        wire.writes.clear()
        edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
        for start, stop in itertools.pairwise(edges):
            if wire.protocol is protocol:
                protocol.feed(stream[start:stop])
        for _ in range(3):
            await asyncio.sleep(0)
        wire.protocol.connection_lost(None)
        return seen, wire.written

    return asyncio.run(run())


@settings(max_examples=150, deadline=None)
@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 10_000), max_size=10))
def test_any_split_of_any_websocket_stream_gives_the_same_events_and_answers(
    parts: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(parts)
    assert events(stream, cuts) == events(stream, [])

"""Beside the `websockets` library, as a client of ours and as a server to us."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.transport.ends import PATIENCE_S, SMALL, Echo, Recorder, listening
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from mpreg.errors import MpregError, ResourceError
from mpreg.transport import dial
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT, Limits

pytestmark = pytest.mark.anyio
JSON, MSGPACK = Encoding.JSON, Encoding.MSGPACK


# A client of ours.


@pytest.mark.parametrize("size", [1, 125, 126, 65535, 65536, 500_000])
async def test_a_client_gets_text_for_text_and_binary_for_binary(size: int) -> None:
    async with listening("ws") as (listener, _), connect(listener.url, max_size=None) as client:
        await client.send("{" + "é" * size)
        assert await client.recv() == "{" + "é" * size
        await client.send(b"\x81" + bytes(size))
        assert await client.recv() == b"\x81" + bytes(size)


async def test_json_in_a_binary_frame_is_json() -> None:
    async with listening("ws", make=Recorder) as (listener, echoes), connect(listener.url) as client:
        await client.send(b"{}")
        assert await (await echoes.first()).next() == (b"{}", JSON)


async def test_compression_is_offered_and_not_taken() -> None:
    async with listening("ws") as (listener, _), connect(listener.url, compression="deflate") as client:
        assert client.response is not None
        assert "Sec-WebSocket-Extensions" not in client.response.headers
        await client.send("{" + "a" * 10_000)
        assert await client.recv() == "{" + "a" * 10_000


async def test_fragments_of_a_client_are_one_message() -> None:
    async with listening("ws") as (listener, _), connect(listener.url) as client:
        await client.send(iter(["{", "a" * 1000, "", "b" * 100_000, "}"]))
        assert await client.recv() == "{" + "a" * 1000 + "b" * 100_000 + "}"


async def test_a_client_gets_a_long_message_in_fragments() -> None:
    limits = msgspec.structs.replace(CLIENT, frame_bytes_max=100_000, chunk_bytes=60_000)
    async with listening("ws", limits=limits, make=Recorder) as (listener, echoes), connect(listener.url) as client:
        (await echoes.first()).link.send(b"{" + b"a" * 200_000, JSON)
        sizes = [len(part) async for part in client.recv_streaming()]
        assert sizes == [60_000, 60_000, 60_000, 20_001]


async def beat(link: Any) -> None:
    """As if 20 s had passed: a ping leaves, and something comes back for it."""
    link._beat()
    assert not link.heard
    async with asyncio.timeout(PATIENCE_S):
        while not link.heard:
            await asyncio.sleep(0)


async def test_pings_are_answered_both_ways_and_also_between_fragments() -> None:
    async with listening("ws") as (listener, echoes), connect(listener.url, ping_interval=None) as client:
        await (await client.ping(b"hello"))

        async def fragments() -> AsyncIterator[str]:
            yield "{"
            await (await client.ping())
            yield "}"

        await client.send(fragments())
        assert await client.recv() == "{}"
        for _ in range(10):
            await beat((await echoes.first()).link)
        await client.send("{}")
        assert await client.recv() == "{}"


async def test_a_client_that_closes_gets_its_close_back() -> None:
    async with listening("ws", make=Recorder) as (listener, echoes):
        client = await connect(listener.url)
        await client.close(1000, "bye")
        assert client.close_code == 1000
        assert await (await echoes.first()).gone() is None


@pytest.mark.parametrize("code", [1001, 3000, 4999, 1011])
async def test_a_close_code_says_whether_it_was_in_good_order(code: int) -> None:
    async with listening("ws", make=Recorder) as (listener, echoes):
        client = await connect(listener.url)
        await client.close(code, "because")
        error = await (await echoes.first()).gone()
        if code == 1001:
            assert error is None
        else:
            assert error is not None
            assert f"{code}: because" in error.message


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (None, 1000, ""),
        (ResourceError("RESOURCE_SHUTTING_DOWN", "later"), 1012, "later [RESOURCE_SHUTTING_DOWN]"),
        (MpregError("AUTH_INVALID", "who?"), 1008, "who? [AUTH_INVALID]"),
        (MpregError("AUTH_INVALID", "é" * 200), 1008, "é" * 61),
    ],
)
async def test_a_client_is_told_why_the_link_is_closed(error: MpregError | None, code: int, reason: str) -> None:
    async with listening("ws", make=Recorder) as (listener, echoes), connect(listener.url) as client:
        (await echoes.first()).link.close(error)
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == code
        assert client.close_reason == reason


async def test_a_frame_over_the_limit_is_answered_with_why() -> None:
    async with listening("ws", limits=SMALL) as (listener, _), connect(listener.url) as client:
        await client.send("{" + "a" * 4000)
        assert msgspec.json.decode(await client.recv())["frame_bytes_max"] == 4000
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1009


async def test_20_mb_and_one_byte_in_one_frame_is_answered_with_why() -> None:
    async with listening("ws") as (listener, _):
        client = await connect(listener.url, max_size=None)
        sending = asyncio.ensure_future(client.send(b"{" + bytes(20_000_000)))
        assert msgspec.json.decode(await client.recv())["frame_bytes_max"] == 20_000_000
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1009
        await asyncio.wait([sending])
        sending.exception()


# A server to us.


@asynccontextmanager
async def served(
    limits: Limits = CLIENT, make: Callable[[], Recorder] = Recorder
) -> AsyncIterator[tuple[Recorder, ServerConnection]]:
    arrived: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()

    async def handle(connection: ServerConnection) -> None:
        arrived.set_result(connection)
        await connection.wait_closed()

    async with serve(handle, "127.0.0.1", 0, max_size=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        client = make()
        link = await dial(f"ws://127.0.0.1:{port}", client.accept, limits=limits, timeout_s=PATIENCE_S)
        yield client, await arrived
        link.close()
        await link.wait_closed()


@pytest.mark.parametrize("size", [1, 125, 126, 65535, 65536, 500_000])
async def test_a_server_gets_text_for_json_and_binary_for_messagepack(size: int) -> None:
    async with served() as (client, server):
        client.link.send(b"{" + b"a" * size, JSON)
        assert await server.recv() == "{" + "a" * size
        client.link.send(b"\x81" + bytes(size), MSGPACK)
        assert await server.recv() == b"\x81" + bytes(size)
        await server.send("{" + "a" * size)
        assert await client.next() == (b"{" + b"a" * size, JSON)
        await server.send(b"\x81" + bytes(size))
        assert await client.next() == (b"\x81" + bytes(size), MSGPACK)


async def test_fragments_and_pings_of_a_server() -> None:
    async with served() as (client, server):
        await server.send(iter(["{", "a" * 100_000, "}"]))
        assert await client.next() == (b"{" + b"a" * 100_000 + b"}", JSON)
        await (await server.ping(b"hello"))


async def test_our_pings_are_answered_by_a_server() -> None:
    async with served() as (client, server):
        for _ in range(10):
            await beat(client.link)
        client.link.send(b"{}", JSON)
        assert await server.recv() == "{}"


async def test_a_server_that_closes() -> None:
    async with served() as (client, server):
        await server.close(1000)
        assert await client.gone() is None
    async with served() as (client, server):
        await server.close(1013, "full")
        error = await client.gone()
        assert error is not None
        assert "1013: full" in error.message


async def test_closing_tells_a_server() -> None:
    async with served() as (client, server):
        client.link.close()
        with pytest.raises(ConnectionClosed):
            await server.recv()
        assert server.close_code == 1000
        assert await client.gone() is None


async def test_a_server_that_refuses_the_upgrade() -> None:
    def refuse(connection: ServerConnection, _: object) -> object:
        return connection.respond(401, "who are you?")

    async with serve(lambda _: asyncio.sleep(0), "127.0.0.1", 0, process_request=refuse) as server:  # type: ignore[arg-type]
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(MpregError, match="401") as refused:
            await dial(f"ws://127.0.0.1:{port}", Recorder().accept)
        assert refused.value.code == "TRANSPORT_CONNECTION_REFUSED"


@pytest.mark.parametrize("make", [Recorder, Echo])
async def test_a_server_whose_frame_is_too_large_is_told_so(make: Callable[[], Recorder]) -> None:
    async with served(SMALL, make) as (client, server):
        await server.send("{" + "a" * 4000)
        with pytest.raises(ConnectionClosed):
            await server.recv()
        assert server.close_code == 1009
        assert client.refused[0].details["frame_bytes_max"] == 4000
        error = await client.gone()
        assert error is client.refused[0]


async def test_a_server_whose_message_is_too_large_is_heard_further() -> None:
    async with served(SMALL) as (client, server):
        await server.send(iter(["{" + "a" * 3000] * 8))
        await server.send("{}")
        assert await client.next() == (b"{}", JSON)
        assert client.refused[0].code == "RESOURCE_MESSAGE_TOO_LARGE"

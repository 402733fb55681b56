"""A hub on bare picows: frames of length-prefixed messages, what came in one turn of the loop goes to every
subscriber as one frame. No topics, no limits: what the technique could reach.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import picows

from bench.roles.pubsub import Sink
from bench.servers import free_port

BINARY = picows.WSMsgType.BINARY
LENGTH = struct.Struct(">I")
SUBSCRIBE, SETTLE = b"S", b"F"
AHEAD_BYTES = 1 << 18


@asynccontextmanager
async def hub(**_: Any) -> AsyncIterator[dict[str, Any]]:
    loop = asyncio.get_running_loop()
    subscribers: list[Any] = []
    waiting: list[bytes] = []

    def deliver() -> None:
        frame = b"".join(waiting)
        waiting.clear()
        for transport in subscribers:
            transport.send(BINARY, frame)

    class Listener(picows.WSListener):  # type: ignore[misc]
        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if frame.msg_type != BINARY:
                return
            data = frame.get_payload_as_bytes()
            if data == SUBSCRIBE:
                subscribers.append(transport)
                transport.send(BINARY, b"")
            elif data == SETTLE:
                transport.send(BINARY, b"")
            else:
                if not waiting:
                    loop.call_soon(deliver)
                waiting.append(LENGTH.pack(len(data)) + data)

        def on_ws_disconnected(self, transport: Any) -> None:
            if transport in subscribers:
                subscribers.remove(transport)

    port = free_port()
    server = await picows.ws_create_server(lambda _: Listener(), "127.0.0.1", port)
    yield {"url": f"ws://127.0.0.1:{port}/"}
    server.close()


async def subscribe(sink: Sink, count: int, url: str, **_: Any) -> object:
    class Listener(picows.WSListener):  # type: ignore[misc]
        def __init__(self) -> None:
            self.joined = asyncio.Event()

        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            data = frame.get_payload_as_bytes()
            start = 0
            self.joined.set()
            while start < len(data):
                stop = start + 4 + LENGTH.unpack_from(data, start)[0]
                sink.got(data[start + 4 : stop])
                start = stop

    kept = []
    for _number in range(count):
        transport, listener = await picows.ws_connect(Listener, url)
        transport.send(BINARY, SUBSCRIBE)
        await listener.joined.wait()
        kept.append((transport, listener))
    return kept


class _Publisher(picows.WSListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.settled = asyncio.Event()
        self.transport: Any = None

    def on_ws_connected(self, transport: Any) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: Any, frame: Any) -> None:
        self.settled.set()

    async def send(self, payload: bytes) -> None:
        self.transport.send(BINARY, payload)
        while self.transport.underlying_transport.get_write_buffer_size() > AHEAD_BYTES:
            await asyncio.sleep(0.001)

    async def settle(self) -> None:
        self.settled.clear()
        self.transport.send(BINARY, SETTLE)
        await self.settled.wait()


@asynccontextmanager
async def publisher(url: str, **_: Any) -> AsyncIterator[_Publisher]:
    _, listener = await picows.ws_connect(_Publisher, url)
    yield listener

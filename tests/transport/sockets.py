"""A transport without a socket, and raw sockets that say what no proper client would."""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit


class _Socket:
    family = -1

    def fileno(self) -> int:
        return -1

    def setsockopt(self, *_: Any) -> None: ...

    def getsockopt(self, *_: Any) -> int:
        return 0


class Wire(asyncio.Transport):
    """Keeps what is written, one entry a write. `taken` is how much of it the operating system has taken."""

    def __init__(self) -> None:
        super().__init__({"socket": _Socket(), "peername": ("127.0.0.1", 1)})
        self.writes: list[bytes] = []
        self.buffered = 0
        self.blocked = False
        self.protocol: Any = None
        self.ended = ""
        self.reading = True

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        if self.blocked:
            self.buffered += len(data)
            if self.buffered > self.high:
                self.protocol.pause_writing()

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def is_closing(self) -> bool:
        return bool(self.ended)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def masked(opcode: int, payload: bytes, *, fin: bool = True, mask: bool = True) -> bytes:
    """A WebSocket frame as a client sends it."""
    size, key = len(payload), os.urandom(4)
    head = bytes([opcode | (0x80 if fin else 0)])
    bit = 0x80 if mask else 0
    if size < 126:
        head += bytes([size | bit])
    elif size < 65536:
        head += bytes([126 | bit]) + struct.pack(">H", size)
    else:
        head += bytes([127 | bit]) + struct.pack(">Q", size)
    if not mask:
        return head + payload
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


REQUEST = (
    b"GET /chat?x=1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nX-API-Key: k\r\n\r\n"
)


@asynccontextmanager
async def raw(
    url: str, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port, ssl=context, server_hostname="localhost" if context else None
    )
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.transport.abort()


@asynccontextmanager
async def raw_websocket(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Past the handshake; frames are the caller's business."""
    async with raw(url) as (reader, writer):
        writer.write(REQUEST)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        yield reader, writer


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Opcode and payload of an unmasked frame."""
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack(">H", await reader.readexactly(2))
    elif size == 127:
        (size,) = struct.unpack(">Q", await reader.readexactly(8))
    return first & 0x0F, await reader.readexactly(size)

"""Frames of a 4-byte length over an asyncio protocol, as bare as can be: for the references."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

LENGTH = struct.Struct(">I")


class Framed(asyncio.Protocol):
    """What is put in one turn of the loop leaves in one write."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.received = b""
        self.out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self.received + data if self.received else data
        at, size = 0, len(received)
        while size - at >= LENGTH.size:
            end = at + LENGTH.size + LENGTH.unpack_from(received, at)[0]
            if end > size:
                break
            self.on_frame(received[at + LENGTH.size : end])
            at = end
        self.received = received[at:]

    def on_frame(self, frame: bytes) -> None:
        raise AssertionError("made to be overridden")

    def put(self, frame: bytes) -> None:
        if not self.out:
            self.loop.call_soon(self.flush)
        self.out += (LENGTH.pack(len(frame)), frame)

    def flush(self) -> None:
        self.transport.write(b"".join(self.out))
        self.out.clear()

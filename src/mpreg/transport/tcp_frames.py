"""Frames on a TCP link, both ways; no I/O.

    frame     length (4 bytes, big-endian), then so many bytes
    length 0  keep-alive
    message   MessagePack, or JSON if the first byte is `{` (R-W2)
    chunk     first byte 0xC1, which MessagePack never uses; second byte 1 if more follows, 0 if it is the last;
              then a part of a message that is too long for one frame

So a plain length-prefixed peer never sees or needs a chunk unless a message is over the frame limit, and any length
over the limit stays what it is, an error after which no frame can be found again. Whole messages may come between
the chunks of another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from mpreg.errors import MpregError, ProtocolError, ResourceError
from mpreg.transport.socket_link import SocketLink, too_large
from mpreg.wire.encoding import JSON, MSGPACK, OPENING_BRACE, Encoding, encoding_of
from mpreg.wire.limits import Limits

LENGTH: Final = Struct(">I")
KEEP_ALIVE: Final = LENGTH.pack(0)
CHUNK: Final = 0xC1
LAST, MORE = 0, 1
_HEADER: Final = LENGTH.size
_LOOKS_LIKE: Final = {
    b"GET ": "HTTP: the peer takes this for a WebSocket port",
    b"HTTP": "an answer in HTTP: the peer is no TCP port of MPREG",
    b"POST": "HTTP",
    b"HEAD": "HTTP",
    b"PUT ": "HTTP",
    b"OPTI": "HTTP",
    b"\x16\x03": "TLS: the peer takes this for a tcps port",
}


class TcpFraming:
    """What leaves."""

    waits_for_peer = False

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def frame(self, message: bytes, encoding: Encoding) -> bytes:
        return len(message).to_bytes(4, "big") + message

    def pieces(self, message: bytes, encoding: Encoding) -> Iterator[bytes | memoryview]:
        size = len(message)
        if size <= self._limits.frame_bytes_max:
            yield LENGTH.pack(size)
            yield message
            return
        view = memoryview(message)
        step = min(self._limits.chunk_bytes, self._limits.frame_bytes_max - 2)
        for start in range(0, size, step):
            part = view[start : start + step]
            yield LENGTH.pack(len(part) + 2) + bytes((CHUNK, MORE if start + step < size else LAST))
            yield part

    def restrict(self, limits: Limits) -> None:
        self._limits = limits

    def ping(self) -> bytes:
        return KEEP_ALIVE

    def goodbye(self, error: MpregError | None) -> bytes:
        return b""


class TcpReader:
    """What comes: bytes in any portions, messages out, to whoever is the handler of the link."""

    __slots__ = ("_frame_max", "_limits", "_link", "_message", "_need", "_partial", "_skipping")

    def __init__(self, link: SocketLink, limits: Limits) -> None:
        self._link = link
        self._limits = limits
        self._frame_max = limits.frame_bytes_max
        self._partial = bytearray()
        """The beginning of a frame; `_need` bytes of it are needed to go on."""
        self._need = 0
        self._message = bytearray()
        """The chunks so far of a long message."""
        self._skipping = False
        """The rest of a long message is dropped."""

    def restrict(self, limits: Limits) -> None:
        self._limits = limits
        self._frame_max = limits.frame_bytes_max

    @property
    def between_messages(self) -> bool:
        return not self._partial and not self._message

    def feed(self, data: bytes) -> None:
        if self._partial:
            self._partial += data
            if len(self._partial) < self._need:
                return
            data = bytes(self._partial)
            self._partial = bytearray()
        link = self._link
        start, end = 0, len(data)
        while start + 4 <= end:
            (size,) = LENGTH.unpack_from(data, start)
            if size > self._frame_max:
                link.fail(_framing_lost(data[start : start + 4], size, self._frame_max))
                return
            stop = start + 4 + size
            if stop > end:
                self._need = 4 + size
                break
            if size:
                message = data[start + 4 : stop]
                first = message[0]
                if first == OPENING_BRACE:
                    link.handler.on_message(link, message, JSON)
                elif first != CHUNK:
                    link.handler.on_message(link, message, MSGPACK)
                else:
                    self._take_chunk(message)
                if link.closing:
                    return
            start = stop
        else:
            self._need = 4
        if start < end:
            self._partial += memoryview(data)[start:]

    def _take_chunk(self, chunk: bytes) -> None:
        more = chunk[1] if len(chunk) > 1 else -1
        if more not in (LAST, MORE):
            self._message = bytearray()
            self._skipping = True
            self._link.refuse(ProtocolError("PROTOCOL_INVALID_FRAME", "The second byte of a chunk must be 0 or 1"))
            return
        if not self._skipping:
            size = len(self._message) + len(chunk) - 2
            if size > self._limits.message_bytes_max:
                self._message = bytearray()
                self._skipping = True
                self._link.refuse(too_large(size, self._limits.message_bytes_max))
            else:
                self._message += memoryview(chunk)[2:]
        if more == LAST:
            message, self._message = self._message, bytearray()
            if self._skipping:
                self._skipping = False
            elif message:
                self._link.handler.on_message(self._link, bytes(message), encoding_of(message))


def _framing_lost(header: bytes, size: int, limit: int) -> MpregError:
    seen = next((what for start, what in _LOOKS_LIKE.items() if header.startswith(start)), None)
    if seen is not None:
        return ProtocolError("PROTOCOL_FRAMING_LOST", f"What came over TCP looks like {seen}")
    return ResourceError(
        "RESOURCE_FRAME_TOO_LARGE",
        f"A frame of {size} bytes; the limit is {limit}",
        limit="frame_bytes_max",
        frame_bytes_max=limit,
    )

"""WebSocket frames that leave (RFC 6455). Those of a listener are built here; those of a dialler have to be masked,
which picows does faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final

from picows import WSMsgType

from mpreg.errors import MpregError
from mpreg.wire.encoding import JSON, Encoding
from mpreg.wire.limits import Limits

FIN: Final = 0x80
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

_LENGTH_16: Final = Struct(">BBH").pack
_LENGTH_64: Final = Struct(">BBQ").pack
_TEXT_HEADERS: Final = tuple(bytes((FIN | TEXT, size)) for size in range(126))
_BINARY_HEADERS: Final = tuple(bytes((FIN | BINARY, size)) for size in range(126))

_CLOSE_CODES: Final = {
    "RESOURCE_FRAME_TOO_LARGE": 1009,
    "RESOURCE_MESSAGE_TOO_LARGE": 1009,
    "PROTOCOL_FRAMING_LOST": 1002,
    "PROTOCOL_INTERNAL_ERROR": 1011,
    "RESOURCE_EXHAUSTED": 1013,
    "RESOURCE_SHUTTING_DOWN": 1012,
}
POLICY_VIOLATION: Final = 1008
"""For every other error that ends a link."""
NORMAL: Final = 1000
REASON_BYTES_MAX: Final = 123


def header(opcode: int, size: int) -> bytes:
    """Of an unmasked frame; `opcode` with or without `FIN`."""
    if size < 126:
        return bytes((opcode, size))
    if size < 65536:
        return _LENGTH_16(opcode, 126, size)
    return _LENGTH_64(opcode, 127, size)


def close_of(error: MpregError | None) -> tuple[int, bytes]:
    """The code and the reason that a close frame tells."""
    if error is None:
        return NORMAL, b""
    reason = str(error).encode()[:REASON_BYTES_MAX]
    return _CLOSE_CODES.get(error.code, POLICY_VIOLATION), reason.decode(errors="ignore").encode()


class ListenerFraming:
    """Unmasked."""

    waits_for_peer = True

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def restrict(self, limits: Limits) -> None:
        self._limits = limits

    def frame(self, message: bytes, encoding: Encoding) -> bytes:
        size = len(message)
        if size < 126:
            return (_TEXT_HEADERS if encoding is JSON else _BINARY_HEADERS)[size] + message
        return header(FIN | (TEXT if encoding is JSON else BINARY), size) + message

    def pieces(self, message: bytes, encoding: Encoding) -> Iterator[bytes | memoryview]:
        opcode = TEXT if encoding is JSON else BINARY
        size = len(message)
        if size <= self._limits.frame_bytes_max:
            yield header(FIN | opcode, size)
            yield message
            return
        for part, last in parts(message, min(self._limits.chunk_bytes, self._limits.frame_bytes_max)):
            yield header(opcode | (FIN if last else 0), len(part))
            yield part
            opcode = CONTINUATION

    def ping(self) -> bytes:
        return header(FIN | PING, 0)

    def pong(self, payload: bytes) -> bytes:
        return header(FIN | PONG, len(payload)) + payload

    def goodbye(self, error: MpregError | None) -> bytes:
        code, reason = close_of(error)
        return header(FIN | CLOSE, 2 + len(reason)) + code.to_bytes(2, "big") + reason


class DiallerFraming:
    """Masked. picows makes a frame by writing it, and what it writes ends up in `written`."""

    waits_for_peer = True

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.send: Callable[..., None] = _not_open
        self.written = b""
        self._close = b""
        """picows closes on its own when it can't read what comes, and makes no more frames after that."""

    def restrict(self, limits: Limits) -> None:
        self._limits = limits

    def write(self, frame: bytes) -> None:
        self.written = frame
        if frame[0] == FIN | CLOSE:
            self._close = frame

    def frame(self, message: bytes, encoding: Encoding) -> bytes:
        self.written = b""
        self.send(WSMsgType.TEXT if encoding is JSON else WSMsgType.BINARY, message)
        return self.written

    def pieces(self, message: bytes, encoding: Encoding) -> Iterator[bytes | memoryview]:
        # Always in fragments: picows would keep a buffer as long as the longest frame it ever masked.
        kind = WSMsgType.TEXT if encoding is JSON else WSMsgType.BINARY
        for part, last in parts(message, min(self._limits.chunk_bytes, self._limits.frame_bytes_max)):
            self.written = b""
            self.send(kind, part, last)
            yield self.written
            kind = WSMsgType.CONTINUATION

    def ping(self) -> bytes:
        self.written = b""
        self.send(WSMsgType.PING, b"")
        return self.written

    def pong(self, payload: bytes) -> bytes:
        self.written = b""
        self.send(WSMsgType.PONG, payload)
        return self.written

    def goodbye(self, error: MpregError | None) -> bytes:
        code, reason = close_of(error)
        self.send(WSMsgType.CLOSE, code.to_bytes(2, "big") + reason)
        return self._close


def parts(message: bytes, step: int) -> Iterator[tuple[memoryview, bool]]:
    """Parts of a message, each with whether it is the last."""
    view = memoryview(message)
    for start in range(0, len(view), step):
        yield view[start : start + step], start + step >= len(view)


def _not_open(*_: Any) -> None:
    raise AssertionError("a WebSocket link sends nothing before its handshake")

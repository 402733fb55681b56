"""The two encodings of a message, and how a receiver tells them apart (R-W2)."""

from __future__ import annotations

import enum


class Encoding(enum.Enum):
    JSON = "json"
    MSGPACK = "msgpack"

    __hash__ = object.__hash__
    """By identity, in C: enum's own is a Python function, and tables by encoding are looked into for every message."""


_OPENING_BRACE = 0x7B


def encoding_of(message: bytes | bytearray | memoryview) -> Encoding:
    """The encoding of a binary frame: JSON if it opens with `{`, else MessagePack."""
    return Encoding.JSON if message and message[0] == _OPENING_BRACE else Encoding.MSGPACK

"""The two encodings of a message, and how a receiver tells them apart (R-W2)."""

from __future__ import annotations

import enum
from typing import Final


class Encoding(enum.Enum):
    JSON = "json"
    MSGPACK = "msgpack"

    __hash__ = object.__hash__
    """By identity, in C: enum's own is a Python function, and tables by encoding are looked into for every message."""


JSON: Final = Encoding.JSON
MSGPACK: Final = Encoding.MSGPACK
"""What happens for every message knows them by these names: a member of an enum takes long to look up."""

OPENING_BRACE: Final = 0x7B


def encoding_of(message: bytes | bytearray | memoryview) -> Encoding:
    """The encoding of a binary frame: JSON if it opens with `{`, else MessagePack."""
    return JSON if message and message[0] == OPENING_BRACE else MSGPACK

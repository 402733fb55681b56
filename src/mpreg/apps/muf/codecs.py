"""Values at the edge. What is stored is raw bytes without any header; units agree among themselves what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]


VALUE_BYTES_MAX: Final = 512 << 20
"""What a server takes for one value, unless it is set up otherwise (`proto-max-bulk-len`)."""


class Codec(NamedTuple):
    encode: Encode
    decode: Decode


CodecLike = Literal["bytes", "str", "json"] | Codec | tuple[Encode, Decode]


def _to_bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ValueError(f"data: bytes or str are expected, not {type(value).__name__}; another codec takes other values")


def _to_json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"data: it has no JSON: {error}") from None


def _from_json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"the value is not JSON: {error}") from None


BYTES: Final = Codec(_to_bytes, bytes)
STR: Final = Codec(_to_bytes, bytes.decode)
JSON: Final = Codec(_to_json, _from_json)
_BY_NAME: Final = {"bytes": BYTES, "str": STR, "json": JSON}


def codec_of(like: CodecLike) -> Codec:
    """By name, or a pair of callables; `ValueError` for anything else."""
    if isinstance(like, str):
        if like not in _BY_NAME:
            raise ValueError(f"codec: one of {', '.join(_BY_NAME)} or a pair of callables, not {like!r}")
        return _BY_NAME[like]
    if isinstance(like, tuple) and len(like) == 2 and all(callable(part) for part in like):
        return Codec(*like)
    raise ValueError("codec: a name, or a pair of callables (encode, decode)")


def encoded(codec: Codec, value: Any) -> bytes:
    """The bytes of a value, or a `ValueError` for what the store could not take as it is."""
    raw = codec.encode(value)
    if not isinstance(raw, bytes):
        raise ValueError(f"codec: it made a {type(raw).__name__}, not bytes")
    if len(raw) > VALUE_BYTES_MAX:
        raise ValueError(f"data: {len(raw)} bytes, and a value has at most {VALUE_BYTES_MAX}")
    return raw

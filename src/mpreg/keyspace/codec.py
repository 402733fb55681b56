"""How a value lies in the store: `raw`, `text`, `integer`, `decimal`, `json(T)`, `msgpack(T)`, `custom(…)`.

A codec has a name and a shape (a JSON Schema) so that tools and other languages can read what it wrote.
A value that it can't read is KEYSPACE_UNDECODABLE; it never guesses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from mpreg.errors import KeyspaceError
from mpreg.keyspace.shape import shape_of, type_of

T = TypeVar("T")

INTEGER = re.compile(rb"0|-?[1-9][0-9]*")


class Codec(msgspec.Struct, Generic[T], frozen=True):
    """`encode` raises KEYSPACE_UNENCODABLE, `decode` KEYSPACE_UNDECODABLE. `shape` is JSON Schema, if there is one."""

    name: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    shape: dict[str, Any] | None = None


def unencodable(codec: str, value: object, why: object) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_UNENCODABLE", f"{value!r:.100} is not {codec}: {why}", codec=codec)


def undecodable(codec: str, data: bytes, why: object) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_UNDECODABLE", f"{data[:60]!r} is not {codec}: {why}", codec=codec)


def _encode_raw(value: bytes) -> bytes:
    if not isinstance(value, bytes):
        raise unencodable("raw", value, "takes bytes")
    return value


def _encode_text(value: str) -> bytes:
    if not isinstance(value, str):
        raise unencodable("text", value, "takes str")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise unencodable("text", value, error) from None


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise undecodable("text", data, error) from None


def _encode_integer(value: int) -> bytes:
    if type(value) is not int:
        raise unencodable("integer", value, "takes int")
    return b"%d" % value


def _decode_integer(data: bytes) -> int:
    if len(data) > 40 or INTEGER.fullmatch(data) is None:
        raise undecodable("integer", data, "decimal digits are expected")
    return int(data)


def _encode_decimal(value: float) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise unencodable("decimal", value, "takes float")
    return repr(float(value)).encode()


def _decode_decimal(data: bytes) -> float:
    try:
        return float(data)
    except ValueError as error:
        raise undecodable("decimal", data, error) from None


raw: Codec[bytes] = Codec("raw", _encode_raw, lambda data: data)
text: Codec[str] = Codec("text", _encode_text, _decode_text, {"type": "string"})
integer: Codec[int] = Codec("integer", _encode_integer, _decode_integer, {"type": "integer"})
decimal: Codec[float] = Codec("decimal", _encode_decimal, _decode_decimal, {"type": "number"})


def json(of: type[T], *, shape: dict[str, Any] | None = None) -> Codec[T]:
    """JSON text of `of`; both ways are checked against the type."""
    return _typed("json", of, shape, msgspec.json.Encoder().encode, msgspec.json.Decoder(of).decode)


def msgpack(of: type[T], *, shape: dict[str, Any] | None = None) -> Codec[T]:
    """MessagePack of `of`; both ways are checked against the type."""
    return _typed("msgpack", of, shape, msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(of).decode)


def _typed(
    name: str,
    of: type[T],
    shape: dict[str, Any] | None,
    dump: Callable[[Any], bytes],
    load: Callable[[bytes], T],
) -> Codec[T]:
    def encode(value: T) -> bytes:
        try:
            data = dump(value)
            load(data)  # a struct is not checked when it is made: what can't be read again is not written
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
            raise unencodable(name, value, error) from None
        return data

    def decode(data: bytes) -> T:
        try:
            return load(data)
        except (msgspec.DecodeError, ValueError) as error:
            raise undecodable(name, data, error) from None

    return Codec(name, encode, decode, shape if shape is not None else shape_of(of))


def custom(name: str, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> Codec[T]:
    """A pair of functions. A tool without this Python code sees the bytes as they are."""

    def checked_encode(value: T) -> bytes:
        try:
            return encode(value)
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            raise unencodable(name, value, error) from None

    def checked_decode(data: bytes) -> T:
        try:
            return decode(data)
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            raise undecodable(name, data, error) from None

    if name in BY_NAME or name in ("json", "msgpack"):
        raise KeyspaceError("KEYSPACE_INVALID_DECLARATION", f"{name!r} is the name of a built-in codec", field="codec")
    return Codec(name, checked_encode, checked_decode)


BY_NAME: dict[str, Codec[Any]] = {codec.name: codec for codec in (raw, text, integer, decimal)}


def from_schema(name: str, shape: dict[str, Any] | None) -> Codec[Any]:
    """The codec that a schema file names. One that was `custom` reads and writes plain bytes."""
    match name:
        case "json":
            return json(type_of(shape or {}), shape=shape or {})
        case "msgpack":
            return msgpack(type_of(shape or {}), shape=shape or {})
        case _:
            return BY_NAME.get(name) or Codec(name, raw.encode, raw.decode)

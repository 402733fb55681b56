"""Bytes to message and back: the one place that knows which structs are messages. One decode a frame.

`decode` raises `ProtocolError` and nothing else, whatever the bytes are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from mpreg.errors import MpregError, ProtocolError, RpcError
from mpreg.wire import cache, error, gossip, lifecycle, pubsub, queues, rpc
from mpreg.wire.encoding import JSON, MSGPACK, Encoding
from mpreg.wire.message import Message, RoleMessage, TypeMessage, WhatMessage, is_supported

FAMILIES: Final[dict[str, tuple[type[Message], ...]]] = {
    "role": (
        rpc.Rpc,
        rpc.RpcResponse,
        rpc.RpcCancel,
        rpc.InternalRpc,
        rpc.InternalAnswer,
        error.ErrorResponse,
        *pubsub.MESSAGES,
        *pubsub.BETWEEN_NODES,
        *cache.MESSAGES,
        gossip.Gossip,
    ),
    "type": queues.MESSAGES,
    "what": (lifecycle.Hello, lifecycle.Goodbye),
}
"""Every message by the field that tells it."""

MESSAGES: Final[tuple[type[Message], ...]] = tuple(cls for family in FAMILIES.values() for cls in family)


LETTER_AT: Final = 2
"""Where the first letter of the first key is, `{"r` as well as `\x84\xa4r`: nearly always that of the family. A wrong
guess costs a second decode, nothing else."""
ROLE_LETTER: Final = ord("r")


class _Codec:
    """One encoding: an encoder, a decoder a family."""

    def __init__(self, module: Any) -> None:
        self.encode = module.Encoder(enc_hook=_refuse).encode
        self.decoders = {
            family: module.Decoder(reduce(or_, classes)).decode for family, classes in FAMILIES.items() if classes
        }
        self.any = module.Decoder()
        self.envelope = module.Decoder(_Envelope)
        self.decode_role = self.decoders["role"]
        self.by_letter = {ord(family[0]): decode for family, decode in self.decoders.items()}
        self.text = module is msgspec.json

    def decode(self, message: bytes) -> Message:
        if self.text and not message.isascii():
            _check_text(message)
        try:
            letter = message[LETTER_AT]
            decode = self.decode_role if letter == ROLE_LETTER else self.by_letter.get(letter, self.decode_role)
            decoded: Message = decode(message)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, IndexError) as problem:
            return self.decode_slowly(message, problem)
        version = decoded.version
        if version is not UNSET and not is_supported(version):
            raise _unsupported(version)
        return decoded

    def decode_slowly(self, message: bytes, problem: Exception) -> Message:
        """The first key was not the one that tells the family, or the message is wrong: find out which."""
        try:
            envelope = self.envelope.decode(message)
        except msgspec.ValidationError as not_an_object:
            raise _invalid(not_an_object) from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as unreadable:
            raise _unreadable(unreadable) from None
        if isinstance(envelope.version, str) and not is_supported(envelope.version):
            raise _unsupported(envelope.version)
        family = next((name for name in FAMILIES if getattr(envelope, name) is not UNSET), None)
        if family is None:
            raise ProtocolError(
                "PROTOCOL_INVALID_MESSAGE", "A message needs a `role`, a `type` or a `what`", path="$.role"
            )
        tag = getattr(envelope, family)
        if not isinstance(tag, str):
            raise ProtocolError("PROTOCOL_INVALID_MESSAGE", f"`{family}` must be a string", path=f"$.{family}")
        if tag not in _TAGS[family]:
            raise ProtocolError(
                "PROTOCOL_UNKNOWN_ROLE", f"No message has the {family} {tag[:64]!r}", path=f"$.{family}"
            )
        try:
            decoded: Message = self.decoders[family](message)
        except msgspec.ValidationError as invalid:
            raise _invalid(invalid) from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as unreadable:
            raise _unreadable(unreadable) from None
        return decoded


class _Envelope(msgspec.Struct):
    u: Any = None
    version: Any = None
    role: Any = UNSET
    type: Any = UNSET
    what: Any = UNSET


_TAGS: Final = {name: {cls.__struct_config__.tag for cls in classes} for name, classes in FAMILIES.items()}


def _check_text(message: bytes) -> None:
    """What stays raw in a message is passed on in other text frames, which would break on it."""
    try:
        message.decode()
    except UnicodeDecodeError as problem:
        raise _unreadable(problem) from None


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} has no encoding")


_CODECS: Final[dict[Encoding, _Codec]] = {
    JSON: _Codec(msgspec.json),
    MSGPACK: _Codec(msgspec.msgpack),
}
_JSON_CODEC: Final = _CODECS[JSON]
_MSGPACK_CODEC: Final = _CODECS[MSGPACK]


def decode(message: bytes, encoding: Encoding) -> Message:
    """The message in these bytes, or a `ProtocolError` with the path of the field that is wrong (R-W3)."""
    return (_JSON_CODEC if encoding is JSON else _MSGPACK_CODEC).decode(message)


def encode(message: Message, encoding: Encoding) -> bytes:
    data: bytes = (_JSON_CODEC if encoding is JSON else _MSGPACK_CODEC).encode(message)
    return data


decode_json: Final = _JSON_CODEC.decode
decode_msgpack: Final = _MSGPACK_CODEC.decode
"""`decode` of one encoding, a call less for every message."""
encode_json: Final[Callable[[Message], bytes]] = _JSON_CODEC.encode
encode_msgpack: Final[Callable[[Message], bytes]] = _MSGPACK_CODEC.encode


def read_u(message: bytes, encoding: Encoding) -> str | None:
    """The correlation id of a message that could not be decoded, if that much can be read."""
    try:
        u = _CODECS[encoding].envelope.decode(message).u
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return u if isinstance(u, str) else None


NULL: Final = {JSON: Raw(b"null"), MSGPACK: Raw(b"\xc0")}


def encode_value(value: Any, encoding: Encoding) -> Raw:
    """A result, an argument or a payload; `RPC_UNENCODABLE_RESULT` if it has no encoding."""
    try:
        return Raw((_JSON_CODEC if encoding is JSON else _MSGPACK_CODEC).encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise RpcError("RPC_UNENCODABLE_RESULT", f"The value can't be encoded: {problem}") from None


def decode_value(value: Raw | bytes, encoding: Encoding) -> Any:
    """A raw value as plain Python data."""
    try:
        return (_JSON_CODEC if encoding is JSON else _MSGPACK_CODEC).any.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise _unreadable(problem) from None


def transcode(value: Raw, source: Encoding, target: Encoding) -> Raw:
    """The same value in another encoding; the bytes themselves if it is the same one."""
    return value if source is target else encode_value(decode_value(value, source), target)


_PATH = re.compile(r" - at `(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `(?P<field>[^`]*)`")


def path_of(problem: msgspec.ValidationError) -> tuple[str, str]:
    """What msgspec says of an invalid value: its text without the path, and the path of the field."""
    text = str(problem)
    found = _PATH.search(text)
    path = found["path"] if found else "$"
    missing = _MISSING.search(text)
    if missing:
        path += "." + missing["field"]
    return text[: found.start()] if found else text, path


def _invalid(problem: msgspec.ValidationError) -> MpregError:
    text, path = path_of(problem)
    return ProtocolError("PROTOCOL_INVALID_MESSAGE", f"{text} at {path}", path=path)


def _unreadable(problem: Exception) -> MpregError:
    if isinstance(problem, RecursionError):
        return ProtocolError("PROTOCOL_INVALID_FRAME", "The message is nested too deeply")
    if isinstance(problem, UnicodeDecodeError):
        return ProtocolError("PROTOCOL_INVALID_FRAME", "The text is not valid UTF-8")
    return ProtocolError("PROTOCOL_INVALID_FRAME", f"The frame can't be read: {problem}")


def _unsupported(version: str) -> MpregError:
    return ProtocolError(
        "PROTOCOL_UNSUPPORTED_VERSION", f"Version {version[:32]!r} is not supported; this is 2.0", path="$.version"
    )


__all__ = [
    "FAMILIES",
    "MESSAGES",
    "NULL",
    "Message",
    "RoleMessage",
    "TypeMessage",
    "WhatMessage",
    "decode",
    "decode_json",
    "decode_msgpack",
    "decode_value",
    "encode",
    "encode_json",
    "encode_msgpack",
    "encode_value",
    "path_of",
    "read_u",
    "transcode",
]

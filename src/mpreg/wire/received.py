"""A published message as a subscriber reads it: its payload decoded to the type that the subscriber asks for.

A whole batch is decoded in one call. A message whose payload does not fit is left out and counted, as the others
must not suffer from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw

from mpreg.wire.encoding import Encoding

T = TypeVar("T")


class Message(msgspec.Struct, Generic[T], frozen=True, kw_only=True, gc=False):
    topic: str
    payload: T
    timestamp: float = 0.0
    """Seconds since 1970, by the publisher's clock, or the node's if the publisher did not say."""
    message_id: str = ""
    publisher: str | None = None
    headers: dict[str, Any] = {}
    reply_to: str | None = None
    """Where the publisher waits for an answer."""
    backlog: bool = False
    """Published before the subscription began."""


Decoder = Callable[[Raw], "tuple[list[Message[Any]], int]"]
"""From the `messages` of a notification to messages, and how many did not fit."""

_MODULES: Final[dict[Encoding, Any]] = {Encoding.JSON: msgspec.json, Encoding.MSGPACK: msgspec.msgpack}
_BROKEN: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


@lru_cache(maxsize=256)
def decoder(payload_type: Any, encoding: Encoding) -> Decoder:
    module = _MODULES[encoding]
    one = Message if payload_type is Any else Message[payload_type]
    decode_one = module.Decoder(one).decode
    decode_all = module.Decoder(list[one]).decode  # type: ignore[valid-type]  # the type is known only now
    decode_raw = module.Decoder(list[Raw]).decode

    def decode(messages: Raw) -> tuple[list[Message[Any]], int]:
        try:
            return decode_all(messages), 0
        except _BROKEN:
            return _each(messages)

    def _each(messages: Raw) -> tuple[list[Message[Any]], int]:
        found: list[Message[Any]] = []
        invalid = 0
        for raw in decode_raw(messages):
            try:
                found.append(decode_one(raw))
            except _BROKEN:
                invalid += 1
        return found, invalid

    return decode


def mark_backlog(messages: list[Message[Any]]) -> None:
    for message in messages:
        msgspec.structs.force_setattr(message, "backlog", True)


def as_list(message: Raw, encoding: Encoding) -> Raw:
    """A single message as a batch of one."""
    data = bytes(message)
    return Raw(b"[" + data + b"]") if encoding is Encoding.JSON else Raw(b"\x91" + data)

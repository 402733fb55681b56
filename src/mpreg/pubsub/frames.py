"""The bytes of notifications. What all subscribers share is encoded once; what differs, the subscription id, stands in
front of it, ready made.

    single   prefix(id) · u · message       one frame a message, for clients that know nothing else
    batch    prefix(id) · positions, messages

Both read back as a `PubSubNotification`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mpreg.wire.encoding import Encoding
from mpreg.wire.pubsub import PubSubMessage, PubSubNotification

_ROLE: Final = PubSubNotification.__struct_config__.tag
_JSON: Final = msgspec.json.Encoder().encode
_MSGPACK: Final = msgspec.msgpack.Encoder().encode
_FIXMAP: Final = 0x80

ENCODE: Final = {Encoding.JSON: _JSON, Encoding.MSGPACK: _MSGPACK}


def prefix(encoding: Encoding, subscription_id: str, *, batch: bool, backlog: bool) -> bytes:
    fields: dict[str, object] = {"role": _ROLE, "subscription_id": subscription_id}
    if backlog:
        fields["backlog"] = True
    if encoding is Encoding.JSON:
        return _JSON(fields)[:-1] + (b"," if batch else b',"u":"')
    shared = 2  # positions and messages, or u and message
    opened = bytes((_FIXMAP + len(fields) + shared,))
    inside = b"".join(_MSGPACK(part) for field in fields.items() for part in field)
    return opened + inside + (b"" if batch else b"\xa1u\xa8")


def single(encoding: Encoding, prefix: bytes, number: int, body: bytes) -> bytes:
    """`number` makes the notification's `u`; it may go round after 2**32."""
    u = b"%08x" % (number & 0xFFFFFFFF)
    if encoding is Encoding.JSON:
        return b"".join((prefix, u, b'","message":', body, b"}"))
    return b"".join((prefix, u, b"\xa7message", body))


def batch_tail(encoding: Encoding, positions: dict[str, int], messages: Sequence[PubSubMessage]) -> bytes:
    """What follows the prefix of a batch: where it brings the subscriber, and the messages in one go."""
    if encoding is Encoding.JSON:
        return b"".join((b'"positions":', _JSON(positions), b',"messages":', _JSON(messages), b"}"))
    return b"".join((b"\xa9positions", _MSGPACK(positions), b"\xa8messages", _MSGPACK(messages)))

"""A message on its way into the store and out of it. What the scripts look at is packed by `struct`; the rest, payload
and headers, they hand through untouched.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, Literal

import msgspec

from mpreg.queues.names import check_text, check_topic, invalid
from mpreg.queues.settings import (
    GUARANTEES,
    KEPT_MAX_S,
    LEASE_MAX_S,
    PRIORITY_MAX,
    RETRIES_MAX,
    Guarantee,
    milliseconds,
    number,
    seconds,
)

HEADERS_MAX: Final = 64
HEADER_BYTES_MAX: Final = 16_384
PAYLOAD_BYTES_MAX: Final = 1_000_000
_KINDS: Final = {"at_least_once": 0, "broadcast": 1, "quorum": 2, "fire_and_forget": 3}
"""As `send.lua` has them; the last one never gets there."""
_KEY_AT: Final = struct.calcsize(">BhddddhH")
_HEADER: Final = struct.Struct(">ddIIHhBH")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent. Numbers that are None are the queue's."""

    payload: bytes
    """As it came; `encoding` says what it is."""
    topic: str = "message"
    encoding: Literal["json", "msgpack"] = "json"
    delivery_guarantee: Guarantee = "at_least_once"
    priority: int = 0
    group: str = ""
    delay_seconds: float = 0.0
    message_ttl_seconds: float | None = None
    visibility_timeout_seconds: float | None = None
    acknowledgment_timeout_seconds: float | None = None
    max_retries: int | None = None
    required_acknowledgments: int | None = None
    """Of a quorum; None: more than half."""
    deduplication_id: str | None = None
    headers: dict[str, str] = {}
    sent_at: float = 0.0
    """By the sender's clock; for people."""

    def check(self) -> Message:
        if self.delivery_guarantee not in GUARANTEES:
            raise invalid(
                "delivery_guarantee", f"is one of {', '.join(GUARANTEES)}, not {self.delivery_guarantee!r:.60}"
            )
        check_topic(self.topic)
        check_text(self.group, "group", empty=True)
        number("priority", self.priority, -PRIORITY_MAX, PRIORITY_MAX)
        seconds("delay_seconds", self.delay_seconds, 0, KEPT_MAX_S)
        if self.message_ttl_seconds is not None:
            seconds("message_ttl_seconds", self.message_ttl_seconds, 0, KEPT_MAX_S)
        if self.visibility_timeout_seconds is not None:
            seconds("visibility_timeout_seconds", self.visibility_timeout_seconds, 0.001, LEASE_MAX_S)
        if self.acknowledgment_timeout_seconds is not None:
            seconds("acknowledgment_timeout_seconds", self.acknowledgment_timeout_seconds, 0.001, KEPT_MAX_S / 12)
        if self.max_retries is not None:
            number("max_retries", self.max_retries, 0, RETRIES_MAX)
        if self.required_acknowledgments is not None:
            number("required_acknowledgments", self.required_acknowledgments, 1, 65_535)
        if self.deduplication_id is not None:
            check_text(self.deduplication_id, "deduplication_id")
        if len(self.payload) > PAYLOAD_BYTES_MAX:
            raise invalid(
                "message_payload", f"has {len(self.payload)} bytes, over {PAYLOAD_BYTES_MAX}", limit=PAYLOAD_BYTES_MAX
            )
        if len(self.headers) > HEADERS_MAX or sum(len(k) + len(v) for k, v in self.headers.items()) > HEADER_BYTES_MAX:
            raise invalid("headers", f"are over {HEADERS_MAX} or over {HEADER_BYTES_MAX} characters", limit=HEADERS_MAX)
        return self

    def meta(self) -> bytes:
        """For `send.lua`: what the script reads. The place of the deduplication key is put in by `with_key`."""
        group, topic = self.group.encode(), self.topic.encode()
        ttl, retries, visibility = self.message_ttl_seconds, self.max_retries, self.visibility_timeout_seconds
        ack = self.acknowledgment_timeout_seconds
        return struct.pack(
            f">BhddddhHHH{len(group)}sH{len(topic)}s",
            _KINDS[self.delivery_guarantee],
            self.priority,
            milliseconds(self.delay_seconds) if self.delay_seconds else 0,
            -1 if ttl is None else milliseconds(ttl),
            0 if visibility is None else milliseconds(visibility),
            0 if ack is None else milliseconds(ack),
            -1 if retries is None else retries,
            self.required_acknowledgments or 0,
            0,
            len(group),
            group,
            len(topic),
            topic,
        )

    def rest(self) -> bytes:
        """What the scripts hand through."""
        return (
            rest_of(
                self.encoding, self.delivery_guarantee, self.sent_at, self.required_acknowledgments or 0, self.headers
            )
            + self.payload
        )

    def digest(self) -> str:
        """What makes two messages the same for deduplication (R-Q4)."""
        return digest_of(self.deduplication_id, self.topic, self.payload)


def with_key(meta: bytes, place: int) -> bytes:
    return meta[:_KEY_AT] + place.to_bytes(2, "big") + meta[_KEY_AT + 2 :]


def digest_of(deduplication_id: str | None, topic: str, payload: bytes) -> str:
    if deduplication_id is not None:
        return "i" + hashlib.blake2b(deduplication_id.encode(), digest_size=16).hexdigest()
    return "p" + hashlib.blake2b(topic.encode() + b"\0" + payload, digest_size=16).hexdigest()


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it comes out of the store."""

    topic: str
    payload: bytes
    encoding: str
    delivery_guarantee: str
    priority: int
    max_retries: int
    required_acknowledgments: int
    headers: dict[str, str]
    sent_at: float
    expires_at: float


_Rest = tuple[str, str, float, int, dict[str, str]]
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Rest).decode


def rest_of(encoding: str, guarantee: str, sent_at: float, required: int, headers: dict[str, str]) -> bytes:
    data = _encode((encoding, guarantee, sent_at, required, headers))
    return len(data).to_bytes(4, "big") + data


def unpack(body: bytes) -> Stored:
    expires, _due, _visibility, _ack, retries, priority, _copies, lane = _HEADER.unpack_from(body)
    at = _HEADER.size + lane
    topic_end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    rest_end = topic_end + 4 + int.from_bytes(body[topic_end : topic_end + 4], "big")
    encoding, guarantee, sent_at, required, headers = _decode(body[topic_end + 4 : rest_end])
    return Stored(
        topic=body[at + 2 : topic_end].decode(),
        payload=body[rest_end:],
        encoding=encoding,
        delivery_guarantee=guarantee,
        priority=priority,
        max_retries=retries,
        required_acknowledgments=required,
        headers=headers,
        sent_at=sent_at,
        expires_at=expires / 1000,
    )

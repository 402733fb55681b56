"""Messages on their way into the store and out of it. What the scripts look at is packed by `struct`; the rest,
payloads and headers, they hand through untouched.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
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
_HEADER: Final = struct.Struct(">dddIIHhH")


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
        """For `send.lua`: all but the payload. The place of the deduplication key is put in by `with_key`."""
        group, topic = self.group.encode(), self.topic.encode()
        ttl, retries, visibility = self.message_ttl_seconds, self.max_retries, self.visibility_timeout_seconds
        ack, required = self.acknowledgment_timeout_seconds, self.required_acknowledgments or 0
        rest = _encode((self.encoding, self.delivery_guarantee, required, self.headers))
        return struct.pack(
            f">BhddddhHHH{len(group)}sH{len(topic)}sI{len(rest)}s",
            _KINDS[self.delivery_guarantee],
            self.priority,
            milliseconds(self.delay_seconds) if self.delay_seconds else 0,
            -1 if ttl is None else milliseconds(ttl),
            0 if visibility is None else milliseconds(visibility),
            0 if ack is None else milliseconds(ack),
            -1 if retries is None else retries,
            required,
            0,
            len(group),
            group,
            len(topic),
            topic,
            len(rest),
            rest,
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
    """Messages as they come out of the store: one, or several that differ in nothing but their payloads."""

    topic: str
    payloads: list[bytes]
    encoding: str
    delivery_guarantee: str
    priority: int
    max_retries: int
    required_acknowledgments: int
    headers: dict[str, str]
    sent_at: float
    expires_at: float


_Rest = tuple[str, str, int, dict[str, str]]
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Rest).decode


def is_alike(meta: bytes, other: bytes) -> bool:
    """Whether they may be stored as one, payloads aside. Broadcasts and quorums are always alone."""
    return (meta is other or meta == other) and meta[0] == 0


def payloads_of(payloads: Sequence[bytes]) -> bytes:
    """As they stand in a body."""
    many = len(payloads)
    return struct.pack(f">H{many}I", many, *map(len, payloads)) + b"".join(payloads)


def unpack(body: bytes) -> Stored:
    expires, _due, sent, _visibility, _ack, retries, priority, lane = _HEADER.unpack_from(body)
    at = _HEADER.size + lane
    topic_end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    rest_end = topic_end + 4 + int.from_bytes(body[topic_end : topic_end + 4], "big")
    encoding, guarantee, required, headers = _decode(body[topic_end + 4 : rest_end])
    many = int.from_bytes(body[rest_end : rest_end + 2], "big")
    first = rest_end + 2 + 4 * many
    ends = list(accumulate(struct.unpack_from(f">{many}I", body, rest_end + 2), initial=first))
    return Stored(
        topic=body[at + 2 : topic_end].decode(),
        payloads=[body[begin:end] for begin, end in pairwise(ends)],
        encoding=encoding,
        delivery_guarantee=guarantee,
        priority=priority,
        max_retries=retries,
        required_acknowledgments=required,
        headers=headers,
        sent_at=sent / 1000,
        expires_at=expires / 1000,
    )

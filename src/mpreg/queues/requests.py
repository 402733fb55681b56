"""What is asked, checked: nothing is changed unless it is right. A message becomes what `send.lua` takes."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from msgspec import UNSET

from mpreg.queues.message import (
    PAYLOAD_BYTES_MAX,
    Message,
    digest_of,
)
from mpreg.queues.names import check_pattern, check_text, invalid
from mpreg.queues.records import Packed
from mpreg.queues.settings import Guarantee, QueueSettings, guarantee_of
from mpreg.wire.encoding import Encoding
from mpreg.wire.queues import CreateQueuePayload, Outgoing, SubscribeQueuePayload

SHAPES_MAX: Final = 4096
PATTERNS_MAX: Final = 64

Shape = tuple[Any, ...]
_shape_of: Final = attrgetter(
    "topic",
    "delivery_guarantee",
    "priority",
    "group",
    "delay_seconds",
    "message_ttl_seconds",
    "visibility_timeout_seconds",
    "acknowledgment_timeout_seconds",
    "max_retries",
    "required_acknowledgments",
)


class Packer:
    """Messages of one shape (all but payload, headers and deduplication) are checked once."""

    def __init__(self) -> None:
        self._shapes: dict[Encoding, dict[Shape, bytes]] = {encoding: {} for encoding in Encoding}
        self._last: tuple[Encoding, Shape, bytes] | None = None
        """What comes together is mostly of one shape."""

    def pack(self, asked: Outgoing, encoding: Encoding) -> Packed:
        """Raises `QUEUE_INVALID`, which names the field."""
        payload = bytes(asked.message_payload)
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise invalid(
                "message_payload", f"has {len(payload)} bytes, over {PAYLOAD_BYTES_MAX}", limit=PAYLOAD_BYTES_MAX
            )
        if asked.headers:
            meta = _meta(asked, encoding)
        else:
            shape, last = _shape_of(asked), self._last
            if last is not None and last[0] is encoding and last[1] == shape:
                meta = last[2]
            else:
                shapes = self._shapes[encoding]
                known = shapes.get(shape)
                meta = known if known is not None else _remember(shapes, shape, _meta(asked, encoding))
                self._last = (encoding, shape, meta)
        digest = ""
        if asked.deduplication_id is not None:
            check_text(asked.deduplication_id, "deduplication_id")
            digest = digest_of(asked.deduplication_id, asked.topic, payload)
        return Packed(meta, payload, digest)


def _remember(shapes: dict[Shape, bytes], shape: Shape, meta: bytes) -> bytes:
    if len(shapes) >= SHAPES_MAX:
        shapes.clear()
    shapes[shape] = meta
    return meta


def _meta(asked: Outgoing, encoding: Encoding) -> bytes:
    message = Message(
        payload=b"",
        topic=asked.topic,
        encoding=encoding.value,
        delivery_guarantee=guarantee_of(asked.delivery_guarantee),
        priority=asked.priority,
        group=asked.group,
        delay_seconds=asked.delay_seconds,
        message_ttl_seconds=asked.message_ttl_seconds,
        visibility_timeout_seconds=asked.visibility_timeout_seconds,
        acknowledgment_timeout_seconds=asked.acknowledgment_timeout_seconds,
        max_retries=asked.max_retries,
        required_acknowledgments=asked.required_acknowledgments,
        headers=asked.headers,
    )
    return message.check().meta()


def settings_in(asked: CreateQueuePayload) -> QueueSettings:
    given = {field: value for field in QueueSettings.__struct_fields__ if (value := getattr(asked, field)) is not UNSET}
    return QueueSettings(**given).check()


def settings_out(name: str, settings: QueueSettings) -> CreateQueuePayload:
    return CreateQueuePayload(
        queue_name=name, **{field: getattr(settings, field) for field in QueueSettings.__struct_fields__}
    )


def patterns_in(asked: SubscribeQueuePayload) -> tuple[str, ...]:
    patterns = asked.topic_patterns or (asked.topic_pattern,)
    if len(patterns) > PATTERNS_MAX:
        raise invalid("topic_patterns", f"are {len(patterns)}, over {PATTERNS_MAX}", limit=PATTERNS_MAX)
    return tuple(dict.fromkeys(map(check_pattern, patterns)))


def is_kept(guarantee: Guarantee | str) -> bool:
    return guarantee != "fire_and_forget"

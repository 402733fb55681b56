"""The wire as documents for people and generators: JSON Schema of every message, and AsyncAPI 3. Both are made from
the structs, so that they cannot say anything else than the codec does."""

from __future__ import annotations

import inspect
from typing import Any, Final

import msgspec

from mpreg.errors import CODES
from mpreg.wire.codec import FAMILIES, MESSAGES
from mpreg.wire.limits import CLIENT
from mpreg.wire.message import VERSION, Message
from mpreg.wire.queues import QueueStatistics

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
ASYNCAPI: Final = "3.0.0"

FROM_NODE: Final = (
    "-response",
    "_response",
    "-answer",
    "-ack",
    "-notification",
    "_reply",
    "_statistics",
    "message_delivered",
    "_pending_ack",
    "broadcast_message",
    "quorum_message",
    "queue_subscription_ended",
)
"""How the tag of a message ends that a node sends to a client; every other message is sent to a node."""

_SERVERS: Final = {
    "ws": ("ws", 6666, "WebSocket"),
    "wss": ("wss", 6667, "WebSocket over TLS"),
    "tcp": ("tcp", 6668, "TCP: 4-byte big-endian length, then so many bytes"),
    "tcps": ("tcps", 6669, "TCP over TLS"),
}


_DESCRIPTION: Final = f"""\
Functions, topics, queues and the cache of a node. A WebSocket text frame is JSON; a binary frame and a TCP frame are
MessagePack, or JSON if the first byte is `{{`. A reply uses the encoding of its request. One frame has at most
{CLIENT.frame_bytes_max} bytes, one message in several frames {CLIENT.message_bytes_max}."""


def json_schema() -> dict[str, Any]:
    """One schema that every message fits, with a definition for each by the name of its struct."""
    references, definitions = _components("#/$defs/{name}")
    return {
        "$schema": DIALECT,
        "title": f"Messages of MPREG {VERSION}",
        "oneOf": [references[message] for message in MESSAGES],
        "$defs": definitions,
    }


def asyncapi() -> dict[str, Any]:
    """An AsyncAPI 3 document from the node's side: what it receives and what it sends, on which addresses."""
    references, schemas = _components("#/components/schemas/{name}")
    messages = {name_of(message): _message(message, references[message]) for message in MESSAGES}
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "MPREG",
            "version": VERSION,
            "description": _DESCRIPTION,
        },
        "defaultContentType": "application/json",
        "servers": {
            name: {"host": f"localhost:{port}", "protocol": protocol, "description": description}
            for name, (protocol, port, description) in _SERVERS.items()
        },
        "channels": {
            "node": {
                "address": "/",
                "description": "A connection carries messages in both directions; requests run concurrently.",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
            }
        },
        "operations": {
            "receive": _operation(
                "receive", "What a node takes", [m for m in MESSAGES if not is_from_node(m) or _both_ways(m)]
            ),
            "send": _operation("send", "What a node sends", [m for m in MESSAGES if is_from_node(m) or _both_ways(m)]),
        },
        "components": {"messages": messages, "schemas": schemas},
        "x-error-codes": {
            code: {"retryable": known.retryable, "meaning": known.meaning} for code, known in sorted(CODES.items())
        },
    }


def name_of(message: type[Message]) -> str:
    return message.__name__


def family_of(message: type[Message]) -> str:
    """The field that tells this message: `role`, `type` or `what`."""
    return next(family for family, classes in FAMILIES.items() if message in classes)


def is_from_node(message: type[Message]) -> bool:
    return str(message.__struct_config__.tag).endswith(FROM_NODE)


def _both_ways(message: type[Message]) -> bool:
    return family_of(message) == "what" or message is QueueStatistics


def _components(template: str) -> tuple[dict[type[Message], dict[str, Any]], dict[str, Any]]:
    references, definitions = msgspec.json.schema_components(MESSAGES, ref_template=template)
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(definitions))  # defaults may be tuples
    return dict(zip(MESSAGES, references, strict=True)), plain


def _message(message: type[Message], reference: dict[str, Any]) -> dict[str, Any]:
    family = family_of(message)
    tag = message.__struct_config__.tag
    described = inspect.getdoc(message)
    return {
        "name": str(tag),
        "title": message.__name__,
        "summary": f"`{family}` is `{tag}`",
        **({"description": described} if described else {}),
        "payload": reference,
    }


def _operation(action: str, summary: str, messages: list[type[Message]]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": "#/channels/node"},
        "summary": summary,
        "messages": [{"$ref": f"#/channels/node/messages/{name_of(message)}"} for message in messages],
    }

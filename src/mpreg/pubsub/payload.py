"""Payloads of this program's own: from plain data to raw bytes."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from mpreg.errors import PubSubError, RpcError
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding


def encode_payload(payload: Any, encoding: Encoding) -> Raw:
    """Raises `PUBSUB_UNENCODABLE_PAYLOAD`."""
    try:
        return codec.encode_value(payload, encoding)
    except RpcError as problem:
        raise PubSubError("PUBSUB_UNENCODABLE_PAYLOAD", problem.message) from None

"""What nodes tell each other when a value changes, so that each drops what it holds (`cache_update`).

A message says which key and which version, never the value, so one that comes late can't bring anything back: what is
held is dropped if it is older than the message, else the message is old news. Who missed one finds out by version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from mpreg.cache.key import cache_key, invalid, key_bytes, parse_key
from mpreg.wire.cache import CacheChange, CacheRequestKey
from mpreg.wire.gossip import CacheUpdate

Kind = Literal["put", "delete", "invalidate"]


class Update(msgspec.Struct, frozen=True, array_like=True):
    operation: Kind
    key: bytes
    """Of the store; empty with a pattern."""
    version: int
    value_hash: str = ""
    pattern: str = ""
    """Whatever matches it (R-C9) may have changed."""


Announce = Callable[[Update], None]
"""Tells the other nodes; it neither waits nor raises."""

_MEANT: Final = msgspec.msgpack.Decoder(tuple[str, list[Update]])
_SAID: Final = msgspec.msgpack.Encoder()


def value_hash(value: bytes) -> str:
    return "sha256:" + hashlib.sha256(value).hexdigest()


def said(node: str, updates: list[Update]) -> bytes:
    return _SAID.encode((node, updates))


def meant(data: bytes) -> tuple[str, list[Update]]:
    """Who said what. `msgspec.DecodeError` for what no node said."""
    return _MEANT.decode(data)


def to_wire(update: Update) -> CacheUpdate:
    """The payload of the note's gossip message."""
    key = parse_key(update.key)
    return CacheUpdate(
        operation=update.operation,
        key=CacheRequestKey(namespace=key.namespace, identifier=key.identifier, version=key.version),
        value_hash=update.value_hash,
        metadata={"version": update.version},
    )


def from_wire(payload: CacheUpdate) -> Update:
    """Without a version it is news of any version. Raises `CACHE_INVALID` for what is no key or no change."""
    try:
        named = msgspec.convert(payload.key, CacheRequestKey)
        operation = msgspec.convert(payload.operation, Kind)
    except msgspec.ValidationError as problem:
        raise invalid("$.payload", str(problem)) from None
    key = cache_key(named.namespace, named.identifier, named.version)
    version = payload.metadata.get("version")
    return Update(operation, key_bytes(key), version if isinstance(version, int) else 2**53, payload.value_hash)


def to_change(update: Update) -> CacheChange:
    """What a client is told."""
    if not update.key:
        return CacheChange(operation="invalidate", namespace="", version=update.version)
    key = parse_key(update.key)
    return CacheChange(
        operation=update.operation,
        namespace=key.namespace,
        identifier=key.identifier,
        key_version=key.version,
        version=update.version,
    )

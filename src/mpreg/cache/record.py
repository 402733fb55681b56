"""A value as it lies in the store: the bytes that `lua/record.lua` writes."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from mpreg.cache.entry import Entry

_HEADER: Final = struct.Struct(">c9dI")
HEADER_BYTES: Final = _HEADER.size


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """`nonce` is of one write, so that what an index says of it never means a later one."""

    nonce: str
    tags: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()


class Record(msgspec.Struct, frozen=True):
    entry: Entry
    uses: int
    used_ms: int
    lease_until_ms: int


_META_OUT: Final = msgspec.msgpack.Encoder()
_META_IN: Final = msgspec.msgpack.Decoder(Meta)
_NO_META: Final = Meta("")


def pack_meta(meta: Meta) -> bytes:
    return _META_OUT.encode(meta) if meta.tags or meta.dependencies else b""


def unpack_meta(data: bytes) -> Meta:
    if not data:
        return _NO_META
    try:
        return _META_IN.decode(data)
    except msgspec.DecodeError:
        return _NO_META


def unpack(data: bytes, checked_ms: int = 0) -> Record | None:
    """None for a key that was deleted, or is being computed, or holds something that the cache did not write."""
    if len(data) < HEADER_BYTES:
        return None
    kind, version, created, expires, fresh, cost, _, lease_until, uses, used, size = _HEADER.unpack_from(data)
    if kind != b"E":
        return None
    meta = unpack_meta(data[HEADER_BYTES : HEADER_BYTES + size]) if size else _NO_META
    entry = Entry(
        value=data[HEADER_BYTES + size :],
        version=int(version),
        created_ms=int(created),
        expires_ms=int(expires),
        fresh_until_ms=int(fresh),
        cost_ms=cost,
        tags=meta.tags,
        dependencies=meta.dependencies,
        checked_ms=checked_ms,
    )
    return Record(entry, int(uses), int(used), int(lease_until))


def version_in(head: bytes) -> int:
    """Of the first 9 bytes of a record; 0 if no value is there."""
    return int(struct.unpack(">d", head[1:9])[0]) if len(head) == 9 and head[:1] == b"E" else 0


def lease_in(head: bytes) -> int:
    """Until when someone computes the value, ms; 0: nobody does."""
    return int(_HEADER.unpack_from(head)[7]) if len(head) >= HEADER_BYTES and head[:1] in b"ET" else 0


class Header(msgspec.Struct, frozen=True):
    version: int
    created_ms: int
    expires_ms: int
    uses: int
    meta_bytes: int


def unpack_header(head: bytes) -> Header | None:
    """Of the first `HEADER_BYTES`; None if no value is there."""
    if len(head) < HEADER_BYTES or head[:1] != b"E":
        return None
    _, version, created, expires, _, _, _, _, uses, _, size = _HEADER.unpack_from(head)
    return Header(int(version), int(created), int(expires), int(uses), size)

"""One entry as it stands on disk, with a checksum: what can't be read back whole is told from what can."""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from mpreg.cache.entry import Entry

CHECK_BYTES: Final = 4


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    key: bytes
    value: bytes
    version: int
    created_ms: int
    expires_ms: int
    fresh_until_ms: int
    cost_ms: float
    tags: tuple[str, ...]
    dependencies: tuple[str, ...]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Record).decode


def encode_record(key: bytes, entry: Entry) -> bytes:
    """When it was last checked against the store is left out: after a restart nobody knows."""
    data = _encode(
        _Record(
            key,
            entry.value,
            entry.version,
            entry.created_ms,
            entry.expires_ms,
            entry.fresh_until_ms,
            entry.cost_ms,
            entry.tags,
            entry.dependencies,
        )
    )
    return zlib.crc32(data).to_bytes(CHECK_BYTES, "big") + data


def decode_record(record: bytes) -> tuple[bytes, Entry]:
    """Key and entry; `ValueError` for anything that `encode_record` did not write."""
    data = record[CHECK_BYTES:]
    if zlib.crc32(data).to_bytes(CHECK_BYTES, "big") != record[:CHECK_BYTES]:
        raise ValueError("the checksum does not fit")
    try:
        found = _decode(data)
    except msgspec.DecodeError as problem:
        raise ValueError(str(problem)) from None
    return found.key, Entry(
        value=found.value,
        version=found.version,
        created_ms=found.created_ms,
        expires_ms=found.expires_ms,
        fresh_until_ms=found.fresh_until_ms,
        cost_ms=found.cost_ms,
        tags=found.tags,
        dependencies=found.dependencies,
    )

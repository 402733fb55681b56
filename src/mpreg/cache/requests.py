"""Reads what a request says: values, times and limits. Whatever is wrong is told by the path of its field, before
anything is done.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mpreg.cache.key import CacheKey, cache_key, check_labels, invalid
from mpreg.cache.settings import CacheSettings
from mpreg.errors import CacheError, MpregError
from mpreg.wire import codec
from mpreg.wire.cache import CacheLevel, CacheOptions, CacheRequestKey
from mpreg.wire.encoding import Encoding

LEVELS: Final[tuple[CacheLevel, ...]] = ("L1", "L2", "L3")
TIMEOUT_MS_MAX: Final = 3_600_000.0
LEASE_MS_MAX: Final = 600_000.0

_encode: Final = msgspec.msgpack.Encoder().encode
_encode_member: Final = msgspec.msgpack.Encoder(order="sorted").encode
_decode: Final = msgspec.msgpack.Decoder().decode


def key_of(key: CacheRequestKey | UnsetType, path: str = "$.key") -> CacheKey:
    if key is UNSET:
        raise invalid(path, "is missing")
    return cache_key(key.namespace, key.identifier, key.version, path=path)


def tags_of(key: CacheRequestKey, path: str = "$.key") -> tuple[str, ...]:
    return check_labels(key.tags, f"{path}.tags") if key.tags else ()


def value_in(raw: Raw | UnsetType, encoding: Encoding, settings: CacheSettings, path: str) -> bytes:
    """A value as it is stored. Null is one (R-C2)."""
    if raw is UNSET:
        raise invalid(path, "is missing")
    return packed(plain(raw, encoding, path), settings, path, raw if encoding is Encoding.MSGPACK else None)


def plain(raw: Raw, encoding: Encoding, path: str) -> Any:
    try:
        return codec.decode_value(raw, encoding)
    except MpregError as error:
        raise CacheError("CACHE_UNENCODABLE", f"{path}: {error.message}", path=path) from None


def packed(value: Any, settings: CacheSettings, path: str, known: Raw | None = None) -> bytes:
    """`known` is the encoding that it came in, if it is ours."""
    try:
        data = bytes(known) if known is not None else _encode(value)
        if _has_extension(value):
            raise TypeError("an extension type of MessagePack")
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise CacheError("CACHE_UNENCODABLE", f"{path}: the value can't be stored: {problem}", path=path) from None
    check_size(len(data), settings, path)
    return data


def _has_extension(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_extension, value.values()))
    if isinstance(value, list):
        return any(map(_has_extension, value))
    return isinstance(value, msgspec.msgpack.Ext)


def check_size(size: int, settings: CacheSettings, path: str) -> None:
    if size > settings.value_bytes_max:
        raise CacheError(
            "CACHE_TOO_LARGE",
            f"{path}: {size} bytes; the limit of a value is {settings.value_bytes_max}",
            path=path,
            limit=settings.value_bytes_max,
        )


def member_in(raw: Raw, encoding: Encoding, settings: CacheSettings, path: str) -> bytes:
    """An element of a set: equal values are equal bytes, however a map within is ordered."""
    value = plain(raw, encoding, path)
    try:
        data = _encode_member(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise CacheError("CACHE_UNENCODABLE", f"{path}: the value can't be stored: {problem}", path=path) from None
    check_size(len(data), settings, path)
    return data


def value_out(data: bytes) -> Any:
    return _decode(data)


def same_value(one: bytes, other: bytes) -> bool:
    """Whether two encodings say the same: the order of a map's keys says nothing, the type of a number does."""
    return one == other or _encode_member(_decode(one)) == _encode_member(_decode(other))


# --- times and numbers ------------------------------------------------------------------------------------------------


def ttl_ms(seconds: float | UnsetType | None, settings: CacheSettings, path: str) -> int:
    """0: none was given."""
    if seconds is UNSET or seconds is None:
        return 0
    if not math.isfinite(seconds) or not 0 < seconds <= settings.ttl_s_max:
        limit = settings.ttl_s_max
        raise invalid(path, f"seconds over 0 and at most {limit:.0f}, not {seconds!r}", limit=limit)
    return max(1, math.ceil(seconds * 1000))


def not_negative(number: float, path: str) -> float:
    if not math.isfinite(number) or number < 0:
        raise invalid(path, f"a number of 0 or more, not {number!r}")
    return number


def within(number: int | UnsetType, low: int, high: int, default: int, path: str) -> int:
    if number is UNSET:
        return default
    if not low <= number <= high:
        raise invalid(path, f"{low} … {high}, not {number}", limit=high)
    return number


def timeout_s(options: CacheOptions, default_ms: float) -> float:
    timeout_ms = default_ms if options.timeout_ms is UNSET else options.timeout_ms
    if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
        raise invalid("$.options.timeout_ms", f"over 0 and at most {TIMEOUT_MS_MAX:.0f}", limit=TIMEOUT_MS_MAX)
    return timeout_ms / 1e3


def lease_ms(options: CacheOptions) -> int:
    assert options.lease_ms is not UNSET
    if not 1 <= options.lease_ms <= LEASE_MS_MAX:
        raise invalid("$.options.lease_ms", f"1 … {LEASE_MS_MAX:.0f}", limit=LEASE_MS_MAX)
    return int(options.lease_ms)


def levels_of(options: CacheOptions) -> tuple[CacheLevel, ...]:
    if options.cache_levels is UNSET:
        return LEVELS
    if not options.cache_levels:
        raise invalid("$.options.cache_levels", "names no level")
    if options.consistency_level == "strong" and "L3" not in options.cache_levels:
        raise invalid("$.options.cache_levels", "a strong operation asks L3")
    return options.cache_levels

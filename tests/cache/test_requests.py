"""Values and numbers of requests: what can't be is refused by the path of its field, before anything is done."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from mpreg.cache.requests import (
    lease_ms,
    levels_of,
    member_in,
    not_negative,
    packed,
    same_value,
    timeout_s,
    ttl_ms,
    value_in,
    value_out,
)
from mpreg.cache.settings import CacheSettings
from mpreg.errors import CacheError
from mpreg.wire.cache import CacheOptions
from mpreg.wire.encoding import Encoding

SETTINGS = CacheSettings()
pack = msgspec.msgpack.encode
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), -0.0, 100 * 366 * 86_400])
def test_a_ttl_is_over_zero_and_has_a_limit(seconds: float) -> None:
    with pytest.raises(CacheError) as refused:
        ttl_ms(seconds, SETTINGS, "$.metadata.ttl_seconds")
    assert refused.value.code == "CACHE_INVALID"
    assert refused.value.details["path"] == "$.metadata.ttl_seconds"
    assert refused.value.details["limit"] == SETTINGS.ttl_s_max


def test_a_short_ttl_is_no_ttl_of_zero() -> None:
    assert ttl_ms(0.0001, SETTINGS, "$") == 1
    assert ttl_ms(1.5, SETTINGS, "$") == 1500
    assert ttl_ms(UNSET, SETTINGS, "$") == ttl_ms(None, SETTINGS, "$") == 0


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf")])
def test_a_cost_is_a_number(number: float) -> None:
    with pytest.raises(CacheError, match="CACHE_INVALID"):
        not_negative(number, "$")


@given(plain)
def test_a_value_is_the_same_from_both_encodings(value: Any) -> None:
    from_msgpack = value_in(Raw(pack(value)), Encoding.MSGPACK, SETTINGS, "$")
    assert from_msgpack == pack(value)
    json = msgspec.json.decode(msgspec.json.encode(value))
    assert value_out(value_in(Raw(msgspec.json.encode(value)), Encoding.JSON, SETTINGS, "$")) == json


@pytest.mark.parametrize(
    ("raw", "encoding", "code"),
    [
        (UNSET, Encoding.JSON, "CACHE_INVALID"),
        (Raw(b"\xa2\xff\xff"), Encoding.MSGPACK, "CACHE_UNENCODABLE"),
        (Raw(b"\xd4\x05\x00"), Encoding.MSGPACK, "CACHE_UNENCODABLE"),
        (Raw(b"\x91\xd4\x05\x00"), Encoding.MSGPACK, "CACHE_UNENCODABLE"),
        (Raw(b"1" + b"0" * 30), Encoding.JSON, "CACHE_UNENCODABLE"),
        (Raw(pack("x" * 100)), Encoding.MSGPACK, "CACHE_TOO_LARGE"),
    ],
)
def test_what_is_no_value_is_refused(raw: Any, encoding: Encoding, code: str) -> None:
    with pytest.raises(CacheError) as refused:
        value_in(raw, encoding, CacheSettings(value_bytes_max=50), "$.value")
    assert refused.value.code == code
    assert refused.value.details["path"] == "$.value"


def test_what_has_no_encoding_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), endless, 2**70):
        with pytest.raises(CacheError, match="CACHE_UNENCODABLE"):
            packed(value, SETTINGS, "$")


def test_members_and_comparisons_go_by_what_is_said() -> None:
    one, other = Raw(pack({"a": 1, "b": [2]})), Raw(pack({"b": [2], "a": 1}))
    assert member_in(one, Encoding.MSGPACK, SETTINGS, "$") == member_in(other, Encoding.MSGPACK, SETTINGS, "$")
    assert same_value(bytes(one), bytes(other))
    for first, second in ((1, 1.0), (1, True), (0, False), ("1", 1), ([1, 2], [2, 1])):
        assert not same_value(pack(first), pack(second))


@pytest.mark.parametrize("timeout_ms", [0, -1, float("nan"), 1e12])
def test_a_timeout_is_over_zero(timeout_ms: float) -> None:
    with pytest.raises(CacheError, match="CACHE_INVALID"):
        timeout_s(CacheOptions(timeout_ms=timeout_ms), 5000)
    assert timeout_s(CacheOptions(), 5000) == 5


@pytest.mark.parametrize("asked", [0, -1, float("nan"), 1e9])
def test_a_lease_has_a_limit(asked: float) -> None:
    with pytest.raises(CacheError, match="CACHE_INVALID"):
        lease_ms(CacheOptions(lease_ms=asked))


def test_strong_asks_the_store() -> None:
    assert levels_of(CacheOptions()) == ("L1", "L2", "L3")
    with pytest.raises(CacheError, match="CACHE_INVALID"):
        levels_of(CacheOptions(cache_levels=("L1",), consistency_level="strong"))

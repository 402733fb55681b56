"""Codecs read what they wrote and guess nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.errors import KeyspaceError
from mpreg.keyspace import Codec, custom, decimal, integer, json, msgpack, raw, text
from mpreg.keyspace.codec import from_schema


class Point(msgspec.Struct):
    x: int
    y: float = 0.0
    names: list[str] = []


POINTS = st.builds(
    Point, x=st.integers(-(2**53), 2**53), y=st.floats(allow_nan=False, allow_infinity=False), names=st.lists(st.text())
)


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        (raw, st.binary()),
        (text, st.text()),
        (integer, st.integers(-(10**38), 10**38)),
        (decimal, st.floats(allow_nan=False)),
        (json(Point), POINTS),
        (msgpack(Point), POINTS),
        (json(dict[str, Any]), st.dictionaries(st.text(), st.none() | st.booleans() | st.text())),
    ],
    ids=lambda given: given.name if isinstance(given, Codec) else "",
)
@given(data=st.data())
def test_what_was_written_is_read_back(codec: Codec[Any], values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    value = data.draw(values)
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize("codec", [text, integer, decimal, json(Point), msgpack(Point)], ids=lambda codec: codec.name)
@given(data=st.binary(max_size=30))
def test_any_bytes_are_a_value_or_undecodable(codec: Codec[Any], data: bytes) -> None:
    try:
        codec.decode(data)
    except KeyspaceError as error:
        assert error.code == "KEYSPACE_UNDECODABLE"  # noqa: PT017  # a value is as good


@pytest.mark.parametrize("data", [b"", b"007", b"+1", b" 1", b"1.0", b"1e3", b"\xd9\xa3", b"-0", b"9" * 41])
def test_an_integer_has_one_spelling(data: bytes) -> None:
    with pytest.raises(KeyspaceError, match="KEYSPACE_UNDECODABLE"):
        integer.decode(data)


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (raw, "text"),
        (text, b"bytes"),
        (text, "\ud800"),
        (integer, True),
        (integer, 1.0),
        (decimal, True),
        (json(Point), Point(x="no")),  # type: ignore[arg-type]  # what a program may do wrong
        (msgpack(Point), object()),
    ],
)
def test_what_could_not_be_read_again_is_not_written(codec: Codec[Any], value: Any) -> None:
    with pytest.raises(KeyspaceError, match="KEYSPACE_UNENCODABLE"):
        codec.encode(value)


def test_a_custom_codec_turns_its_failures_into_ours() -> None:
    codec = custom("hex", lambda value: value.hex().encode(), lambda data: bytes.fromhex(data.decode()))
    assert codec.decode(codec.encode(b"\x00")) == b"\x00"
    with pytest.raises(KeyspaceError, match="KEYSPACE_UNDECODABLE"):
        codec.decode(b"zz")
    with pytest.raises(KeyspaceError, match="KEYSPACE_INVALID_DECLARATION"):
        custom("text", text.encode, text.decode)


@given(POINTS)
def test_a_codec_that_a_schema_names_reads_what_python_wrote(point: Point) -> None:
    loaded = from_schema("json", json(Point).shape)
    again = loaded.decode(json(Point).encode(point))
    assert json(Point).decode(loaded.encode(again)) == point

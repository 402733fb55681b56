"""A key says what it is: what is built is read back, and what could be read in two ways is refused."""

from __future__ import annotations

import datetime
import fnmatch
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.keyspace.values import patterns, values_of

from mpreg.errors import KeyspaceError
from mpreg.keyspace.pattern import KEY_BYTES_MAX, Pattern, escape_glob, parse_pattern


@given(st.data())
def test_a_key_that_was_built_is_read_back_to_the_same_values(data: st.DataObject) -> None:
    pattern: Pattern = data.draw(patterns)
    values = data.draw(values_of(pattern))
    assert pattern.parse(pattern.build(values)) == values


@given(st.data(), st.binary(max_size=12))
def test_whatever_is_read_from_a_key_builds_that_key_again(data: st.DataObject, noise: bytes) -> None:
    pattern: Pattern = data.draw(patterns)
    key = data.draw(st.sampled_from([noise, pattern.build(data.draw(values_of(pattern))) + noise]))
    values = pattern.parse(key)
    assert values is None or pattern.build(values) == key


@given(st.data())
def test_a_key_fits_the_glob_of_its_pattern(data: st.DataObject) -> None:
    pattern: Pattern = data.draw(patterns)
    values = data.draw(values_of(pattern))
    known = {name: value for name, value in values.items() if data.draw(st.booleans())}
    key = pattern.build(values).decode("latin-1")
    assert fnmatch.fnmatchcase(key, _as_fnmatch(pattern.glob(**known).decode("latin-1")))


def _as_fnmatch(glob: str) -> str:
    """Redis escapes by a backslash, fnmatch by brackets."""
    out, at = "", 0
    while at < len(glob):
        if glob[at] == "\\":
            at += 1
            out += f"[{glob[at]}]" if glob[at] in "*?[" else glob[at]
        else:
            out += glob[at]
        at += 1
    return out


@given(st.binary(max_size=20))
def test_an_escaped_literal_matches_itself_only(literal: bytes) -> None:
    assert fnmatch.translate(_as_fnmatch(escape_glob(literal).decode("latin-1"))) == fnmatch.translate(
        "".join(f"[{c}]" if c in "*?[" else c for c in literal.decode("latin-1"))
    )


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("a{", 1),
        ("a}", 1),
        ("{a}{b}", 3),
        ("{A}", 0),
        ("{a:number}", 0),
        ("x{a:path}:rest", 1),
        ("{n:int}5", 0),
        ("{a:x||y}", 0),
        ("{a:x|x}", 0),
        ("{a:x:y|z}:b", 0),
        ("{a}:{a}", 0),
        ("{{{q}}}:{rest:path}", 8),
    ],
)
def test_a_pattern_that_can_t_be_read_back_in_one_way_only_is_refused(text: str, position: int) -> None:
    with pytest.raises(KeyspaceError) as caught:
        parse_pattern(text)
    assert caught.value.code == "KEYSPACE_INVALID_PATTERN"
    assert caught.value.details["position"] == position


@pytest.mark.parametrize(
    ("pattern", "values", "field"),
    [
        ("a:{n:int}", {"n": "5"}, "n"),
        ("a:{n:int}", {"n": True}, "n"),
        ("a:{n:int}", {"n": 2**63}, "n"),
        ("a:{n}", {"n": ""}, "n"),
        ("a:{n}", {"n": "x:y"}, "n"),
        ("a:{n}", {"n": b"x"}, "n"),
        ("a:{n}", {"n": "\ud800"}, "n"),
        ("a:{n:word}", {"n": "x y"}, "n"),
        ("a:{n:word}", {"n": "x" * 513}, "n"),
        ("a:{n:a|b}", {"n": "c"}, "n"),
        ("a:{n:date}", {"n": datetime.datetime(2025, 1, 1)}, "n"),
        ("a:{n:date}", {"n": datetime.date(999, 1, 1)}, "n"),
        ("a:{n}", {}, "n"),
        ("a:{n}", {"n": "x", "m": "y"}, "m"),
        ("a:{n:path}", {"n": "x" * KEY_BYTES_MAX}, "n"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(pattern: str, values: dict[str, Any], field: str) -> None:
    with pytest.raises(KeyspaceError) as caught:
        parse_pattern(pattern).build(values)
    assert caught.value.code == "KEYSPACE_INVALID_VALUE"
    assert caught.value.details["field"] == field


@pytest.mark.parametrize(
    "key", [b"a:007", b"a:+7", b"a:", b"a:9223372036854775808", b"a:7\n", b"a:\xff", b"b:7", b"a:7:8", "a:٣".encode()]
)
def test_what_no_value_is_written_as_is_not_read_either(key: bytes) -> None:
    assert parse_pattern("a:{n:int}").parse(key) is None


def test_a_date_that_does_not_exist_is_no_date() -> None:
    assert parse_pattern("a:{d:date}").parse(b"a:2025-02-30") is None


def test_bytes_that_are_no_text_are_a_value_of_the_kind_bytes_only() -> None:
    key = b"a:\xff\xfe \n"
    assert parse_pattern("a:{n}").parse(key) is None
    assert parse_pattern("a:{n:bytes}").parse(key) == {"n": b"\xff\xfe \n"}


def test_a_hash_tag_can_t_be_moved_by_a_value() -> None:
    pattern = parse_pattern("{{{queue}}}:ready")
    assert pattern.build({"queue": "jobs"}) == b"{jobs}:ready"
    with pytest.raises(KeyspaceError):
        pattern.build({"queue": "a}b"})

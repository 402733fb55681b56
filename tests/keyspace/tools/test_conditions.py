"""Which keys a condition lets through; what is not known lets none through."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.errors import KeyspaceError
from mpreg.keyspace.tools.conditions import FIELDS, NEVER, OPERATORS, Condition, Facts, all_met, parse

SPELLED = {"$lt": "<", "$lte": "<=", "$gt": ">", "$gte": ">=", "$eq": "=", "$ne": "!="}


def facts(**known: float | str | None) -> Facts:
    return Facts(**{"type": "string", "ttl_remaining": NEVER, **known})  # type: ignore[arg-type]  # typed by the test


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("idle >= 1d", Condition("idle", "$gte", 86_400.0)),
        ("idle>=90", Condition("idle", "$gte", 90.0)),
        ("  ttl_remaining  <  1.5h ", Condition("ttl_remaining", "$lt", 5_400.0)),
        ("ttl_remaining = none", Condition("ttl_remaining", "$eq", NEVER)),
        ("size_bytes > 2MB", Condition("size_bytes", "$gt", 2.0 * 1024**2)),
        ("type in hash, set", Condition("type", "$in", ("hash", "set"))),
        ("type != stream", Condition("type", "$ne", "stream")),
        ("age $lte 10m", Condition("age", "$lte", 600.0)),
        ('{"idle": {"$gte": 60}}', Condition("idle", "$gte", 60.0)),
        ('{"type": {"$in": ["hash"]}}', Condition("type", "$in", ("hash",))),
        ('{"ttl_remaining": {"$eq": null}}', Condition("ttl_remaining", "$eq", NEVER)),
    ],
)
def test_conditions_are_read_as_people_and_programs_write_them(text: str, condition: Condition) -> None:
    assert parse(text) == [condition]


def test_json_may_hold_several() -> None:
    assert len(parse('{"idle": {"$gte": 60, "$lt": 90}, "type": {"$eq": "hash"}}')) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "idle",
        "idle >=",
        "access > 3",
        "idle > -1",
        "idle > soon",
        "idle > 1mb",
        "idle > none",
        "size_bytes > 1d",
        "frequency > 1s",
        "type < hash",
        "type > 3x y",
        "idle $regex 3",
        '{"idle": 3}',
        '{"idle": {"$gte": true}}',
        '{"idle": {"$gte": -3}}',
        '{"type": {"$eq": 3}}',
        "{",
    ],
)
def test_what_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(KeyspaceError) as caught:
        parse(text)
    assert caught.value.code == "KEYSPACE_INVALID_QUERY"
    assert caught.value.details["field"] == "where"


@given(
    st.sampled_from(sorted(set(FIELDS) - {"type"})),
    st.sampled_from(sorted(SPELLED)),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
)
def test_both_spellings_mean_what_the_operator_says(field: str, name: str, limit: int, value: int) -> None:
    known = facts(**{field: float(value)})
    expected = OPERATORS[name](value, limit)
    assert all_met(parse(f"{field} {SPELLED[name]} {limit}"), known) is expected
    assert all_met(parse(json.dumps({field: {name: limit}})), known) is expected


@given(st.sampled_from(["<", "<=", ">", ">="]), st.integers(0, 10**9))
def test_a_key_that_never_expires_has_no_place_in_an_order(spelled: str, limit: int) -> None:
    assert all_met(parse(f"ttl_remaining {spelled} {limit}"), facts(ttl_remaining=NEVER)) is False


def test_a_key_that_never_expires_is_found_as_such() -> None:
    assert all_met(parse("ttl_remaining = none"), facts(ttl_remaining=math.inf)) is True
    assert all_met(parse("ttl_remaining = none"), facts(ttl_remaining=3.0)) is False
    assert all_met(parse("ttl_remaining != none"), facts(ttl_remaining=3.0)) is True


@pytest.mark.parametrize("field", ["idle", "frequency", "size_bytes", "age"])
def test_what_is_not_known_meets_nothing(field: str) -> None:
    for spelled in ("<", "<=", ">", ">=", "=", "!="):
        assert all_met(parse(f"{field} {spelled} 5"), facts()) is None


def test_one_that_is_not_met_outweighs_one_that_is_not_known() -> None:
    both = [*parse("idle > 5"), *parse("type = hash")]
    assert all_met(both, facts()) is False
    assert all_met([], facts()) is True

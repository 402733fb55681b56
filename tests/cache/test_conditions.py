"""C8: comparisons on what is known of an entry, and on a field of a value."""

from __future__ import annotations

from typing import Any

import pytest

from mpreg.cache.conditions import all_hold, at_path, check, check_comparison, holds, is_missing
from mpreg.errors import CacheError


@pytest.mark.parametrize(
    ("comparison", "yes", "no"),
    [
        ({"$lt": 5}, [4, -1, 4.5], [5, 6, "4", None, True]),
        ({"$lte": 5}, [5, 4], [5.1]),
        ({"$gt": 5}, [6], [5, None]),
        ({"$gte": 5}, [5, 6], [4.9]),
        ({"$eq": 5}, [5, 5.0], [4, "5", None]),
        ({"$ne": 5}, [4, "5", None], [5]),
        ({"$in": [1, "a", None]}, [1, "a", None], [2, "b", True]),
        ({"$eq": True}, [True], [1]),
        ({"$gt": 1, "$lt": 3}, [2], [1, 3]),
        ({"$lt": "b"}, ["a"], ["b", 1]),
    ],
)
def test_each_operator(comparison: dict[str, Any], yes: list[Any], no: list[Any]) -> None:
    assert all(holds(comparison, value) for value in yes)
    assert not any(holds(comparison, value) for value in no)


def test_conditions_are_joined_and_what_is_not_known_fulfils_none() -> None:
    known = {"ttl_remaining": 5.0, "access_count": 0, "size_bytes": 10, "age": None}
    assert all_hold({"ttl_remaining": {"$lt": 6}, "access_count": {"$eq": 0}}, known)
    assert not all_hold({"ttl_remaining": {"$lt": 6}, "access_count": {"$gt": 0}}, known)
    assert not all_hold({"age": {"$gte": 0}}, known)


@pytest.mark.parametrize(
    "conditions",
    [
        {"colour": {"$eq": 1}},
        {"age": {"$like": 1}},
        {"age": {}},
        {"age": {"$lt": "5"}},
        {"age": {"$lt": float("nan")}},
        {"age": {"$lt": True}},
        {"age": {"$lt": 5, "$gt": 10}},
        {"age": {"$lt": 5, "$gte": 5}},
        {"age": {"$eq": 5, "$ne": 5}},
        {"age": {"$eq": 5, "$in": [1, 2]}},
        {"age": {"$in": []}},
        {"age": {"$in": 5}},
        {"age": {"$in": list(range(1001))}},
    ],
)
def test_what_nothing_could_fulfil_is_refused(conditions: dict[str, dict[str, Any]]) -> None:
    with pytest.raises(CacheError) as refused:
        check(conditions, "$.conditions")
    assert refused.value.code == "CACHE_INVALID"
    assert refused.value.details["path"].startswith("$.conditions.")


@pytest.mark.parametrize(
    "comparison", [{"$lte": 5, "$gte": 5}, {"$eq": "a"}, {"$gt": "a", "$lt": "c"}, {"$in": [None]}]
)
def test_what_something_fulfils_is_taken(comparison: dict[str, Any]) -> None:
    check_comparison(comparison, "$")


def test_paths_lead_into_values() -> None:
    value = {"a": {"b": [1, {"c": None}]}}
    assert at_path(value, "a.b.1.c") is None
    assert at_path(value, "a.b.0") == 1
    for path in ("a.x", "a.b.2", "a.b.c", "a.b.0.c", ""):
        assert is_missing(at_path(value, path))

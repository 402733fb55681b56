"""Field paths of maps: how they are written, and how maps within maps lie in one hash."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.cache.map_paths import check_apart, flat, increment_in, nested, shown, split, stored
from mpreg.cache.settings import CacheSettings
from mpreg.errors import CacheError

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=4)
trees = st.recursive(
    st.none() | st.integers(0, 9) | st.text(max_size=2) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def written(path: list[str]) -> str:
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


@given(st.lists(names, min_size=1, max_size=4))
def test_any_name_can_be_written_in_a_path(path: list[str]) -> None:
    assert split(written(path), "$") == path
    assert shown(stored(written(path), "$")) == written(path)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a\\", "a\\b", "a\0b", "x" * 2000, ".".join("a" * 40)])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(CacheError, match="CACHE_INVALID"):
        split(text, "$")


@given(st.dictionaries(names, trees, max_size=3))
def test_a_map_is_the_same_after_it_lay_flat(value: dict[str, Any]) -> None:
    fields: list[bytes] = []
    for name, inside in value.items():
        triples = flat(name.encode(), inside, CacheSettings(), "$")
        for what, field, data in zip(triples[::3], triples[1::3], triples[2::3], strict=True):
            assert isinstance(field, bytes)
            assert isinstance(data, bytes)
            fields += (field + b"\0", b"") if what == "m" else (field, data)
    assert nested(fields, b"") == value


@pytest.mark.parametrize(
    ("value", "bare", "wanted"),
    [
        ({"operation": "increment", "value": 1}, False, "1"),
        ({"operation": "decrement", "value": 2.5}, False, "-2.5"),
        (7, True, "7"),
        (7, False, None),
        ({"operation": "other", "value": 1}, False, None),
        ({"operation": "increment"}, False, None),
    ],
)
def test_increments_are_told_from_values(value: Any, bare: bool, wanted: str | None) -> None:
    assert increment_in(value, "$", bare=bare) == wanted


@pytest.mark.parametrize("value", ["1", None, True, float("nan"), float("inf"), 2**53])
def test_what_is_no_exact_number_is_refused(value: Any) -> None:
    with pytest.raises(CacheError):
        increment_in({"operation": "increment", "value": value}, "$", bare=False)


def test_updates_of_one_request_lie_apart() -> None:
    check_apart([(b"a", "a"), (b"ab", "ab"), (b"b\0c", "b.c")])
    for other in (b"a", b"a\0b"):
        with pytest.raises(CacheError, match="CACHE_INVALID"):
            check_apart([(b"a", "a"), (other, "x")])


def test_maps_within_maps_have_a_limit() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = {"a": deep}
    with pytest.raises(CacheError, match="CACHE_INVALID"):
        flat(b"a", deep, CacheSettings(), "$")
    with pytest.raises(CacheError, match="CACHE_UNENCODABLE"):
        flat(b"a", {1: 2}, CacheSettings(), "$")
    with pytest.raises(CacheError, match="CACHE_TOO_LARGE"):
        flat(b"a", "x" * 100, CacheSettings(value_bytes_max=50), "$")


def test_values_are_messagepack() -> None:
    assert flat(b"a", [1], CacheSettings(), "$") == ["s", b"a", msgspec.msgpack.encode([1])]

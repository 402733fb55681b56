"""C9: `*` within a level, levels split at dots, the last `*` matches the rest."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.cache.key import cache_key, key_bytes
from mpreg.cache.patterns import IdentifierPattern, KeyPattern
from mpreg.errors import CacheError

levels = st.text("ab", min_size=1, max_size=2)
dotted = st.lists(levels, min_size=1, max_size=3).map(".".join)
pattern_levels = st.sampled_from(["*", "a", "b", "a*", "*b", "ab", "a*b", "**"])
patterns = st.lists(pattern_levels, min_size=1, max_size=4).map(".".join)


def naive(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern == ["*"]:
        return bool(name)
    return bool(name) and fnmatch.fnmatchcase(name[0], pattern[0]) and naive(pattern[1:], name[1:])


@given(patterns, dotted, dotted)
def test_it_matches_what_the_naive_reading_matches(text: str, namespace: str, identifier: str) -> None:
    pattern = KeyPattern.parse(text, "$")
    key = key_bytes(cache_key(namespace, identifier))
    matched = naive(text.split("."), f"{namespace}.{identifier}".split("."))
    assert pattern.matches(key) is matched
    if matched:
        assert fnmatch.fnmatchcase(key.decode(), pattern.glob.decode()), "SCAN would have missed it"


def test_the_examples() -> None:
    pattern = KeyPattern.parse("compute.results.*", "$")
    for namespace, identifier, wanted in (
        ("compute.results", "sha256:abc", True),
        ("compute.results", "a.b.c", True),
        ("compute.results.eu", "x", True),
        ("compute", "results.x", True),
        ("compute.resultsx", "x", False),
        ("other", "x", False),
    ):
        assert pattern.matches(key_bytes(cache_key(namespace, identifier))) is wanted


@pytest.mark.parametrize("text", ["*", "*.*", "**", "*.*.*"])
def test_what_matches_everything_is_known(text: str) -> None:
    assert KeyPattern.parse(text, "$").matches_everything
    assert not KeyPattern.parse("a.*", "$").matches_everything


@pytest.mark.parametrize("text", ["", ".", "a.", "a..b", "x" * 2000, "*a" * 20])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(CacheError, match="CACHE_INVALID"):
        KeyPattern.parse(text, "$.pattern")


@given(st.text("ab*[]?.\\", min_size=1, max_size=6), st.text("ab[]?.\\", min_size=1, max_size=6))
def test_within_a_namespace_a_star_is_any_text(text: str, identifier: str) -> None:
    pattern = IdentifierPattern.parse("ns", text, "$")
    wanted = fnmatch.fnmatchcase(identifier, text.replace("[", "[[]").replace("?", "[?]"))
    assert pattern.matches(key_bytes(cache_key("ns", identifier))) is wanted
    assert not pattern.matches(key_bytes(cache_key("other", identifier)))

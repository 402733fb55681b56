"""Two declarations share no key: the walk through both automata agrees with trying every short key."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.keyspace.values import patterns, values_of

from mpreg.errors import KeyspaceError
from mpreg.keyspace import Keyspace, text
from mpreg.keyspace.overlap import shared_key
from mpreg.keyspace.pattern import Pattern, parse_pattern

ALPHABET = "a1:-"
SHORT_KEYS = [
    "".join(letters).encode() for length in range(6) for letters in itertools.product(ALPHABET, repeat=length)
]
PIECES = st.sampled_from(
    ["a", "1", ":", "-", "a:", "{p}", "{p:int}", "{p:word}", "{p:a|a1|1}", "{p:path}", "{p:bytes}"]
)


@st.composite
def small_patterns(draw: st.DrawFn) -> Pattern | None:
    pieces = draw(st.lists(PIECES, min_size=1, max_size=4))
    spelled = "".join(piece.replace("{p", f"{{p{number}") for number, piece in enumerate(pieces))
    try:
        return parse_pattern(spelled)
    except KeyspaceError:
        return None


@settings(deadline=None, max_examples=300)
@given(small_patterns().filter(bool), small_patterns().filter(bool))
def test_it_finds_a_shared_key_exactly_when_trying_all_short_keys_does(one: Pattern, other: Pattern) -> None:
    tried = next((key for key in SHORT_KEYS if one.parse(key) is not None and other.parse(key) is not None), None)
    found = shared_key(one, other)
    if found is not None:
        assert one.parse(found) is not None
        assert other.parse(found) is not None
    if tried is not None:
        assert found is not None
        assert len(found.decode()) <= len(tried)


@settings(deadline=None)
@given(st.data())
def test_patterns_that_are_said_to_share_nothing_never_read_each_other_s_keys(data: st.DataObject) -> None:
    one, other = data.draw(patterns), data.draw(patterns)
    if shared_key(one, other) is None:
        assert other.parse(one.build(data.draw(values_of(one)))) is None


@pytest.mark.parametrize(
    ("one", "other", "example"),
    [
        ("lock:{kind}:{id}", "lock:issue:{n:int}", "lock:issue:0"),
        ("a:{x:path}", "a:{n:int}", "a:0"),
        ("{x}", "a", "a"),
        ("d:{d:date}", "d:{w:word}", "d:1000-01-01"),
    ],
)
def test_a_declaration_that_shares_a_key_with_an_earlier_one_is_refused_with_an_example(
    one: str, other: str, example: str
) -> None:
    space = Keyspace("demo")
    space.string(one, text, name="one")
    with pytest.raises(KeyspaceError) as caught:
        space.string(other, text, name="other")
    assert caught.value.code == "KEYSPACE_AMBIGUOUS"
    assert caught.value.details["example"] == example
    assert list(space.declarations) == ["one"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("done:{d:date}", "done:today"),
        ("lock:{kind:process|backup}:{id}", "lock:issue:{n:int}"),
        ("config:{a}:{b}", "config:{a}"),
        ("queue:{p:high|low}", "queue:inflight"),
    ],
)
def test_patterns_that_only_look_alike_stand_side_by_side(one: str, other: str) -> None:
    space = Keyspace("demo")
    space.string(one, text, name="one")
    space.string(other, text, name="other")

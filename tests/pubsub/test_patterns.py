"""R-P1: what a topic and a pattern may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.pubsub import oracle

from mpreg.errors import PubSubError
from mpreg.pubsub.automaton import Automaton
from mpreg.pubsub.patterns import join_levels, parse_pattern, split_topic


def refusal(code: str, call: object, *args: object, **kwargs: object) -> PubSubError:
    with pytest.raises(PubSubError) as raised:
        call(*args, **kwargs)  # type: ignore[operator]
    assert raised.value.code == code
    return raised.value


@pytest.mark.parametrize(
    ("topic", "limit"),
    [
        ("orders.*", "no `*`, no `#`"),
        ("#", "no `*`, no `#`"),
        ("a.#.b", "no `*`, no `#`"),
        ("", "a level has at least one character"),
        ("a..b", "a level has at least one character"),
        (".a", "a level has at least one character"),
        ("a.", "a level has at least one character"),
        ("x" * 10_240, "1024 bytes"),
        ("é" * 513, "1024 bytes"),
        (".".join("a" * 65), "64 levels"),
        (".".join("a" * 1000), "1024 bytes"),
        (".".join("a" * 500), "64 levels"),
        ("a\nb", "printable characters"),
        ("a.\x00", "printable characters"),
        ("a.\ud800", "printable characters"),
    ],
)
def test_what_is_no_topic_is_refused_with_the_field_and_the_limit(topic: str, limit: str) -> None:
    error = refusal("PUBSUB_INVALID_TOPIC", split_topic, topic)
    assert error.details == {"field": "topic", "limit": limit}
    assert error.state_changed is False
    assert len(error.message) < 1_200


@pytest.mark.parametrize("topic", ["a", "a.b c.d", "x" * 1024, ".".join("a" * 64), "é" * 512, "温度.部屋", "lang.c#"])
def test_a_topic_may_be_any_printable_text(topic: str) -> None:
    assert split_topic(topic) == topic.split(".")


@pytest.mark.parametrize("pattern", ["", "a..b", ".#", "a.", "a*.b", "a.#b", "x" * 1025, ".".join("#" * 65), "a.\x7f"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    assert refusal("PUBSUB_INVALID_PATTERN", parse_pattern, pattern).details["field"] == "pattern"


def test_a_long_topic_is_refused_before_it_is_split() -> None:
    refusal("PUBSUB_INVALID_TOPIC", split_topic, "." * 20_000_000)
    refusal("PUBSUB_INVALID_PATTERN", parse_pattern, "." * 20_000_000)


@pytest.mark.parametrize(
    ("pattern", "canonical"),
    [("#.#", "#"), ("#.*", "*.#"), ("*.#.#.*.a.#", "*.*.#.a.#"), ("a.#.#.#.x", "a.#.x"), ("a.*", "a.*")],
)
def test_patterns_that_mean_the_same_have_one_form(pattern: str, canonical: str) -> None:
    levels = parse_pattern(pattern)
    assert levels is not None
    assert join_levels(levels) == canonical


def test_an_exact_pattern_is_taken_literally() -> None:
    assert parse_pattern("lang.c#", exact=True) == ("lang", "c#")
    assert parse_pattern("orders.*", exact=True) is None, "no topic can be called so"


@given(oracle.patterns, oracle.topics)
def test_the_automaton_agrees_with_a_regular_expression(pattern: str, topic: str) -> None:
    levels = parse_pattern(pattern)
    assert levels is not None
    assert Automaton(levels).matches(topic.split(".")) is oracle.matches(pattern, topic)


def test_sensors_many_matches_sensors() -> None:
    levels = parse_pattern("sensors.#")
    assert levels is not None
    assert Automaton(levels).matches(["sensors"])

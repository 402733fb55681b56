"""The trie against a regular expression for each pattern, whatever is added and removed; its memory; its worst
cases.
"""

from __future__ import annotations

import gc
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.pubsub import oracle

from mpreg.pubsub.patterns import Levels, parse_pattern
from mpreg.pubsub.trie import PatternTrie


def levels_of(pattern: str) -> Levels:
    levels = parse_pattern(pattern)
    assert levels is not None
    return levels


def match(trie: PatternTrie[Any], topic: str) -> list[Any]:
    return trie.match(topic, topic.split("."))


def form(node: Any) -> Any:
    """A trie as plain data, to compare two of them."""
    if isinstance(node, PatternTrie):
        return node._exact, form(node._root), node.patterns, node.nodes, node.shape()
    if not hasattr(node, "kids"):
        return node
    kids = {level: form(child) for level, child in node.kids.items()}
    return kids, form(node.one), form(node.many), node.here


def built(pairs: set[tuple[Levels, int]]) -> PatternTrie[int]:
    trie = PatternTrie[int]()
    for pattern, value in sorted(pairs):
        trie.add(pattern, value)
    return trie


class TrieAgainstRegularExpressions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.trie = PatternTrie[int]()
        self.pairs: set[tuple[Levels, int]] = set()

    @rule(pattern=oracle.patterns, value=st.integers(0, 3))
    def add(self, pattern: str, value: int) -> None:
        levels = levels_of(pattern)
        is_new = all(known != levels for known, _ in self.pairs)
        assert self.trie.add(levels, value) is is_new
        self.pairs.add((levels, value))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.pairs:
            pair = data.draw(st.sampled_from(sorted(self.pairs)))
            self.pairs.remove(pair)
            is_last = all(known != pair[0] for known, _ in self.pairs)
            assert self.trie.remove(*pair) is is_last

    @rule(pattern=oracle.patterns, value=st.integers(0, 3))
    def remove_what_is_not_there(self, pattern: str, value: int) -> None:
        if (levels_of(pattern), value) not in self.pairs:
            before = form(self.trie)
            with pytest.raises(KeyError):
                self.trie.remove(levels_of(pattern), value)
            assert form(self.trie) == before

    @rule(topic=oracle.topics)
    def match(self, topic: str) -> None:
        expected = sorted(value for levels, value in self.pairs if oracle.matches(".".join(levels), topic))
        assert sorted(match(self.trie, topic)) == expected

    @invariant()
    def the_form_does_not_depend_on_the_past(self) -> None:
        assert form(self.trie) == form(built(self.pairs))

    @invariant()
    def every_pattern_is_listed_once(self) -> None:
        assert sorted(self.trie) == sorted({levels for levels, _ in self.pairs})


TestTrieAgainstRegularExpressions = TrieAgainstRegularExpressions.TestCase
TestTrieAgainstRegularExpressions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(st.lists(oracle.patterns, max_size=30), st.lists(oracle.topics, max_size=10))
@settings(deadline=None, max_examples=300)
def test_many_patterns_at_once(patterns: list[str], topics: list[str]) -> None:
    pairs = {(levels_of(pattern), at) for at, pattern in enumerate(patterns)}
    trie = built(pairs)
    for topic in topics:
        expected = [at for at, pattern in enumerate(patterns) if oracle.matches(pattern, topic)]
        assert sorted(match(trie, topic)) == expected
    for pair in pairs:
        trie.remove(*pair)
    assert form(trie) == form(PatternTrie())


def test_memory_goes_back_to_the_start() -> None:
    random_ = random.Random(3)
    texts = [
        ".".join(random_.choice(("*", "#", *(f"x{i}" for i in range(99)))) for _ in range(5)) for _ in range(20_000)
    ]
    pairs = [(pattern, at) for at, pattern in enumerate(map(levels_of, texts))]
    trie = PatternTrie[int]()
    gc.collect()
    tracemalloc.start()
    try:
        for pair in pairs:
            trie.add(*pair)
        full = tracemalloc.get_traced_memory()[0]
        random_.shuffle(pairs)
        for pair in pairs:
            trie.remove(*pair)
        gc.collect()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert full > 1_000_000
    assert left < 2_000, "an empty table and a node without children"
    assert form(trie) == form(PatternTrie())


def test_the_worst_pattern_takes_a_step_a_node_and_level() -> None:
    """`#.#.#.#.#.x` is `#.x`; with other levels between, backtracking would take a number of steps beyond counting."""
    sixty = ".".join("a" * 60)
    for pattern in ("#.#.#.#.#.x", ".".join(["#", "a"] * 30), ".".join(["#", "*", "a"] * 20) + ".#.x", "#.a.#.a.#.b"):
        trie = PatternTrie[int]()
        trie.add(levels_of(pattern), 1)
        assert bool(match(trie, sixty)) is oracle.matches(pattern, sixty) if pattern.count("#") < 6 else True
        assert trie.steps <= 64 * 64 + 64


def test_the_worst_set_of_patterns_takes_a_step_a_node_and_level() -> None:
    random_ = random.Random(5)
    trie = PatternTrie[int]()
    texts = [".".join(random_.choice("ab*##") for _ in range(60)) for _ in range(200)]
    for at, text in enumerate(texts):
        trie.add(levels_of(text), at)
    nodes = sum(len(levels) + 1 for levels in trie)
    topic = ".".join(random_.choice("ab") for _ in range(64))
    match(trie, topic)
    assert trie.steps <= nodes * 65
    assert len(texts) > 100


def test_a_node_without_many_above_it_is_looked_at_once() -> None:
    trie = PatternTrie[int]()
    texts = [".".join("a" if bits >> at & 1 else "*" for at in range(10)) for bits in range(1024)]
    for at, text in enumerate(texts):
        trie.add(levels_of(text), at)
    assert len(match(trie, ".".join("a" * 10))) == 1024
    assert trie.steps <= trie.shape()["node_count"]


def test_a_value_with_several_matching_patterns_is_listed_as_often() -> None:
    trie = PatternTrie[str]()
    for pattern in ("a.b", "a.*", "a.#", "#"):
        trie.add(levels_of(pattern), "s")
    assert match(trie, "a.b") == ["s"] * 4


def test_the_shape_is_that_of_the_note() -> None:
    trie = PatternTrie[int]()
    for at, pattern in enumerate(("a.*.c", "a.*.d", "x.y", "#")):
        trie.add(levels_of(pattern), at)
    assert trie.shape() == {"node_count": 3, "leaf_count": 4, "max_depth": 3, "avg_depth": 2.25}

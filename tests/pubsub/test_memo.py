"""The memo: never wrong, bounded, and untouched by changes that do not concern a topic."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.pubsub import oracle

from mpreg.pubsub.memo import CHANGES_A_GENERATION, CHANGES_CHECKED, Memo
from mpreg.pubsub.patterns import Levels, parse_pattern


def levels_of(pattern: str) -> Levels:
    levels = parse_pattern(pattern)
    assert levels is not None
    return levels


class MemoIsNeverWrong(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.memo = Memo[list[str]](8)
        self.patterns: set[str] = set()

    @rule(pattern=oracle.patterns)
    def change(self, pattern: str) -> None:
        self.patterns ^= {pattern}
        self.memo.changed(levels_of(pattern))

    @rule()
    def clear(self) -> None:
        self.memo.clear()

    @rule(topic=oracle.topics)
    def ask(self, topic: str) -> None:
        expected = sorted(pattern for pattern in self.patterns if oracle.matches(pattern, topic))
        found = self.memo.get(topic)
        if found is None:
            self.memo.put(topic, expected)
        else:
            assert found == expected

    @invariant()
    def it_is_bounded(self) -> None:
        assert len(self.memo) <= 8


TestMemoIsNeverWrong = MemoIsNeverWrong.TestCase
TestMemoIsNeverWrong.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


def test_a_change_touches_only_the_topics_that_it_matches() -> None:
    memo = Memo[str](100)
    memo.put("orders.new", "o")
    memo.put("alerts.fire", "a")
    memo.changed(levels_of("orders.#"))
    assert memo.get("alerts.fire") == "a"
    assert memo.get("orders.new") is None


def test_an_entry_that_missed_many_changes_is_found_anew() -> None:
    memo = Memo[str](100)
    memo.put("a", "found")
    for _ in range(CHANGES_CHECKED):
        memo.changed(levels_of("b"))
    assert memo.get("a") == "found"
    for _ in range(CHANGES_CHECKED + 1):
        memo.changed(levels_of("b"))
    assert memo.get("a") is None


def test_what_is_asked_for_stays_and_the_rest_goes() -> None:
    memo = Memo[int](100)
    memo.put("hot", 0)
    for at in range(1000):
        assert memo.get("hot") == 0
        memo.put(f"cold.{at}", at)
    assert memo.get("cold.0") is None


def test_after_many_changes_nothing_old_is_held() -> None:
    memo = Memo[int](100)
    memo.put("a", 1)
    for _ in range(2 * CHANGES_A_GENERATION):
        memo.changed(levels_of("b"))
    assert len(memo) == 0

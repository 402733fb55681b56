"""The note's three operations on vector clocks, and the laws that make them useful."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpreg.cluster.vector_clock import ENTRIES_MAX, VALUE_MAX, Clock, compare, increment, is_valid, merge

clocks = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5))


def test_a_local_event_increments_the_own_entry() -> None:
    assert increment({"a": 1, "b": 2}, "a") == {"a": 2, "b": 2}
    assert increment({}, "a") == {"a": 1}


def test_a_receipt_takes_the_higher_entry_of_each_node() -> None:
    assert merge({"a": 1, "b": 5}, {"b": 2, "c": 3}) == {"a": 1, "b": 5, "c": 3}


def test_comparing_tells_causes_from_what_happened_beside_each_other() -> None:
    assert compare({"a": 1}, {"a": 1}) == "equal"
    assert compare({"a": 1}, {"a": 2}) == "before"
    assert compare({"a": 2, "b": 1}, {"a": 2}) == "after"
    assert compare({"a": 1}, {"b": 1}) == "concurrent"


def test_a_node_that_is_not_named_counts_nothing() -> None:
    assert compare({"a": 0}, {}) == "equal"


@given(clocks, clocks, clocks)
def test_merging_does_not_depend_on_order_or_repetition(
    a: dict[str, int], b: dict[str, int], c: dict[str, int]
) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a


@given(clocks, clocks)
def test_a_merge_comes_after_both_and_an_event_after_what_was_before(a: dict[str, int], b: dict[str, int]) -> None:
    assert compare(a, merge(a, b)) in ("before", "equal")
    assert compare(a, increment(a, "a")) == "before"


@given(clocks, clocks)
def test_comparing_is_the_other_way_round_from_the_other_side(a: dict[str, int], b: dict[str, int]) -> None:
    other = {"before": "after", "after": "before", "equal": "equal", "concurrent": "concurrent"}
    assert compare(b, a) == other[compare(a, b)]


def test_a_clock_with_too_many_entries_or_impossible_counts_is_not_valid() -> None:
    assert is_valid({str(n): n for n in range(ENTRIES_MAX)})
    assert not is_valid({str(n): n for n in range(100_000)})
    assert not is_valid({"a": -1})
    assert not is_valid({"a": VALUE_MAX + 1})


@given(st.lists(clocks))
def test_a_nodes_clock_only_grows_and_knows_only_members(received: list[dict[str, int]]) -> None:
    clock = Clock("a")
    for each in received:
        before = dict(clock.counts)
        clock.observe(each, {"a", "b"})
        clock.tick()
        assert compare(before, clock.counts) == "before"
        assert set(clock.counts) <= {"a", "b"}


def test_a_message_carries_only_the_entries_that_concern_it() -> None:
    clock = Clock("a")
    clock.observe({"b": 3, "c": 4}, {"b", "c"})
    assert clock.excerpt(["c", "unknown"]) == {"a": 0, "c": 4}

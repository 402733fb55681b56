"""What a node tells of its interest: exactly it while it is small, never less than it, and bounded whatever it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpreg.pubsub.automaton import Automaton
from mpreg.pubsub.elsewhere import Elsewhere
from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.patterns import Levels, parse_pattern
from mpreg.pubsub.told import Told

LEVEL = st.sampled_from(["a", "b", "c", "*", "#"])
PATTERNS = st.lists(LEVEL, min_size=1, max_size=3).map(lambda levels: canonical(".".join(levels)))


def canonical(pattern: str) -> Levels:
    levels = parse_pattern(pattern)
    assert levels is not None
    return levels


CHANGES = st.lists(st.tuples(PATTERNS, st.booleans(), st.booleans()), max_size=60)


def told_to_others(told: Told, others: set[Levels]) -> set[Levels]:
    add, remove = told.take()
    assert not others & set(add)
    assert others >= set(remove)
    assert not set(add) & set(remove)
    return (others - set(remove)) | set(add)


@given(CHANGES)
def test_few_patterns_are_told_as_they_are(changes: list[tuple[Levels, bool, bool]]) -> None:
    told, wanted, others = Told(), set[Levels](), set[Levels]()
    for pattern, want, tell in changes:
        (wanted.add if want else wanted.discard)(pattern)
        told.changed(pattern, want)
        if tell:
            others = told_to_others(told, others)
            assert others == wanted == set(told.everything())


@given(CHANGES, st.integers(1, 4), st.integers(1, 8))
def test_many_patterns_are_told_as_fewer_that_match_at_least_the_same(
    changes: list[tuple[Levels, bool, bool]], group_max: int, told_max: int
) -> None:
    told, wanted, others = Told(group_max, told_max), set[Levels](), set[Levels]()
    for pattern, want, tell in changes:
        (wanted.add if want else wanted.discard)(pattern)
        told.changed(pattern, want)
        if tell:
            others = told_to_others(told, others)
            assert others == set(told.everything())
            assert len(others) <= told_max
            for topic in (["a"], ["b", "c"], ["a", "b", "c"], ["c", "a", "a", "b"]):
                if any(Automaton(levels).matches(topic) for levels in wanted):
                    assert any(Automaton(levels).matches(topic) for levels in others)
    for pattern in list(wanted):
        told.changed(pattern, False)
    assert told_to_others(told, others if not told.is_pending else set(told.everything())) == set()
    assert told.everything() == []


def test_100_000_subscriptions_do_not_become_100_000_entries_at_every_node() -> None:
    told = Told()
    for number in range(100_000):
        told.changed(("inbox", str(number)), True)
    assert told.take() == ([("inbox", "#")], [])
    for number in range(100_000):
        told.changed((str(number), "x"), True)
    assert told.take() == ([("#",)], [("inbox", "#")])


@given(st.lists(st.tuples(st.sampled_from("xyz"), PATTERNS, st.booleans()), max_size=40))
def test_elsewhere_is_what_a_set_for_each_node_would_be(changes: list[tuple[str, Levels, bool]]) -> None:
    elsewhere = Elsewhere[str](PubSubLimits())
    wanted: dict[str, set[Levels]] = {name: set() for name in "xyz"}
    for name, pattern, add in changes:
        elsewhere.change(name, [pattern] if add else [], [] if add else [pattern])
        (wanted[name].add if add else wanted[name].discard)(pattern)
        for topic in ("a", "b.c", "a.b.c"):
            levels = topic.split(".")
            expected = {n for n, patterns in wanted.items() if any(Automaton(p).matches(levels) for p in patterns)}
            found = elsewhere.match(topic)
            assert set(found) == expected
            assert len(found) == len(expected)
    for name in "xyz":
        elsewhere.forget(name)
    assert not elsewhere
    assert elsewhere.match("a") == ()

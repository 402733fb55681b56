from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rpc.sessions import SetClock

from mpreg.deadlines import Deadline, Deadlines


def deadlines() -> tuple[Any, SetClock]:
    clock = SetClock()
    return Deadlines(clock), clock  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=30))
def test_each_fires_once_at_its_time_or_at_most_20_ms_later_unless_cancelled(wanted: list[tuple[float, bool]]) -> None:
    found, clock = deadlines()
    begin = clock.now
    fired: list[tuple[int, float]] = []
    entries = [
        found.add(after, lambda n=n: fired.append((n, clock.now - begin))) for n, (after, _) in enumerate(wanted)
    ]
    for entry, (_, cancelled) in zip(entries, wanted, strict=True):
        if cancelled:
            entry.cancel()
            entry.cancel()
    clock.advance(101)
    assert sorted(number for number, _ in fired) == [n for n, (_, cancelled) in enumerate(wanted) if not cancelled]
    assert all(0 <= at - wanted[number][0] <= 0.02 for number, at in fired)
    assert len(found) == 0
    assert clock.timers == 0


def test_a_cancelled_deadline_leaves_next_to_nothing_however_far_away_it_was() -> None:
    found, _ = deadlines()
    for number in range(10_000):
        found.add(number, lambda: None).cancel()
    assert len(found) == 0
    assert len(found._slots) == 1, "the last one, for the next one of its time"
    assert len(found._order) < 200


def test_one_call_after_another_sets_one_timer() -> None:
    found, clock = deadlines()
    fired: list[str] = []
    for _ in range(100):
        found.add(1, lambda: fired.append("cancelled")).cancel()
    assert (len(found), len(found._order), clock.timers) == (0, 1, 1)
    found.add(1, lambda: fired.append("in the slot that was kept"))
    clock.advance(2)
    assert fired == ["in the slot that was kept"]
    assert clock.timers == 0


def test_one_that_fires_can_cancel_another_of_the_same_time() -> None:
    found, clock = deadlines()
    fired: list[str] = []
    pair: list[Deadline] = []

    def fire(name: str, other: int) -> None:
        fired.append(name)
        pair[other].cancel()

    pair += [found.add(1, lambda: fire("a", 1)), found.add(1, lambda: fire("b", 0))]
    clock.advance(2)
    assert len(fired) == 1


def test_one_that_fails_holds_up_none(caplog: pytest.LogCaptureFixture) -> None:
    found, clock = deadlines()
    fired: list[int] = []
    found.add(1, lambda: fired.append(1 // 0))
    found.add(1, lambda: fired.append(1))
    found.add(2, lambda: fired.append(2))
    with caplog.at_level(logging.ERROR):
        clock.advance(3)
    assert fired == [1, 2]
    assert "ZeroDivisionError" in caplog.text


def test_one_can_be_added_while_another_fires() -> None:
    found, clock = deadlines()
    fired: list[float] = []

    def again() -> None:
        fired.append(clock.now)
        if len(fired) < 3:
            found.add(1, again)

    found.add(1, again)
    clock.advance(10)
    assert len(fired) == 3
    assert clock.timers == 0


def test_closing_forgets_all() -> None:
    found, clock = deadlines()
    kept = found.add(1, lambda: pytest.fail("closed"))
    found.close()
    kept.cancel()
    clock.advance(2)
    assert len(found) == clock.timers == 0

"""The checker of lock histories finds what it is there for: each broken history is one kind of failure."""

from __future__ import annotations

import pytest
from tests.chaos.lock_history import Event, violations

A, B = 1, 2
GOOD = [
    Event(1.0, A, "acquired", 10, valid_until=4.0),
    Event(1.5, A, "wrote", 10, number=1),
    Event(2.0, A, "renewed", 10, valid_until=5.0),
    Event(3.0, A, "released", 10),
    Event(3.1, B, "acquired", 11, valid_until=6.0),
    # B is paused here, over the end of its lease.
    Event(6.5, A, "acquired", 12, valid_until=9.0),
    Event(6.6, A, "wrote", 12, number=2),
    Event(7.0, B, "resumed", 11, valid_until=6.0),
    Event(7.1, B, "lost", 11),
    Event(7.2, B, "refused", 11),
    Event(8.0, A, "released", 12),
]


LONG = Event(1, A, "acquired", 1, valid_until=9)


def without(*indexes: int) -> list[Event]:
    return [event for index, event in enumerate(GOOD) if index not in indexes]


def test_a_history_as_it_must_be_has_no_violations() -> None:
    assert violations(GOOD) == []
    assert violations(list(reversed(GOOD))) == []
    assert violations([]) == []


def test_who_hears_of_its_lock_too_late_never_held_it() -> None:
    assert violations([*GOOD, Event(8.5, B, "acquired", 9, valid_until=8.0)]) == []


def test_a_holder_that_died_blocks_nobody_after_its_lease() -> None:
    assert violations([Event(1, A, "acquired", 1, valid_until=2), Event(2, B, "acquired", 2, valid_until=3)]) == []


@pytest.mark.parametrize(
    ("history", "says"),
    [
        (without(3), "two holders"),
        ([*GOOD, Event(7.5, B, "acquired", 13, valid_until=9.5)], "two holders"),
        ([LONG, Event(2, B, "acquired", 2, valid_until=3), Event(4, B, "acquired", 3, valid_until=5)], "9.000000, 3"),
        ([*GOOD, Event(9.0, B, "acquired", 12, valid_until=9.5)], "the fence 12 was given twice"),
        ([*GOOD, Event(9.0, B, "acquired", 3, valid_until=9.5)], "the fence 3 came after 12"),
        ([*GOOD, Event(6.0, B, "wrote", 11, number=3)], "a write with the fence 11 was taken after one with 12"),
        (without(8), "process 2 overslept its lease 11, then refused"),
        (without(8, 9), "never noticed"),
    ],
)  # fmt: skip
def test_a_broken_history_is_found(history: list[Event], says: str) -> None:
    assert any(says in violation for violation in violations(history)), violations(history)

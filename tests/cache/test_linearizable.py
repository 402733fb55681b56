"""The checker itself: histories that are right, and histories that are broken in one place."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from tests.cache.linearizable import Done, is_linearizable, register

NEVER = math.inf


def check(*history: Done) -> bool:
    return is_linearizable(history, register, None)


def test_one_after_the_other() -> None:
    assert check(Done(0, 1, "put", 1), Done(2, 3, "get", answer=1), Done(4, 5, "incr", 2, 3))


def test_a_read_may_see_either_side_of_a_write_at_the_same_time() -> None:
    write = Done(0, 10, "put", 1)
    assert check(write, Done(1, 2, "get", answer=1))
    assert check(write, Done(1, 2, "get", answer=None))
    assert check(write, Done(1, 2, "get", answer=None), Done(3, 4, "get", answer=1))


@pytest.mark.parametrize(
    "broken",
    [
        # a read that goes back in time
        (Done(0, 10, "put", 1), Done(1, 2, "get", answer=1), Done(3, 4, "get", answer=None)),
        # a value that nobody wrote
        (Done(0, 1, "put", 1), Done(2, 3, "get", answer=2)),
        # an old value after a write was answered
        (Done(0, 1, "put", 1), Done(2, 3, "put", 2), Done(4, 5, "get", answer=1)),
        # an increment that is lost: two of them answered the same
        (Done(0, 5, "incr", 1, 1), Done(1, 6, "incr", 1, 1)),
        # both of two swaps from the same value succeed
        (Done(0, 1, "put", 1), Done(2, 9, "cas", (1, 2), True), Done(3, 8, "cas", (1, 3), True)),
        # a swap fails, though its value was there all the time
        (Done(0, 1, "put", 1), Done(2, 3, "cas", (1, 2), False)),
        # a delete that found nothing, after a write
        (Done(0, 1, "put", 1), Done(2, 3, "delete", answer=False)),
        # a deleted value comes back
        (Done(0, 1, "put", 1), Done(2, 3, "delete", answer=True), Done(4, 5, "get", answer=1)),
    ],
)
def test_broken_histories_are_found(broken: tuple[Done, ...]) -> None:
    assert not check(*broken)


def test_what_was_never_answered_may_have_happened_or_not() -> None:
    lost = Done(0, NEVER, "incr", 1)
    assert check(lost, Done(1, 2, "get", answer=None))
    assert check(lost, Done(1, 2, "get", answer=1))
    assert check(lost, Done(1, 2, "get", answer=None), Done(3, 4, "get", answer=1))
    assert not check(lost, Done(1, 2, "get", answer=2))


def test_what_was_not_called_yet_did_not_happen() -> None:
    assert not check(Done(5, NEVER, "put", 1), Done(1, 2, "get", answer=1))


def test_the_search_agrees_with_trying_all_orders() -> None:
    chance = random.Random(7)
    verdicts = set()
    for _ in range(400):
        history = [_some(chance) for _ in range(5)]
        verdict = check(*history)
        assert verdict == _by_all_orders(history)
        verdicts.add(verdict)
    assert verdicts == {True, False}


def _some(chance: random.Random) -> Done:
    called = chance.uniform(0, 10)
    answered = called + chance.uniform(0.1, 5)
    match chance.choice(["get", "put", "incr", "cas"]):
        case "get":
            return Done(called, answered, "get", answer=chance.choice([None, 1, 2]))
        case "put":
            return Done(called, answered, "put", chance.choice([1, 2]))
        case "incr":
            return Done(called, answered, "incr", 1, chance.choice([1, 2, 3]))
    return Done(called, answered, "cas", (chance.choice([1, 2]), chance.choice([1, 2])), chance.random() < 0.5)


def _by_all_orders(history: list[Done]) -> bool:
    for order in itertools.permutations(history):
        if any(later.answered < earlier.called for earlier, later in itertools.combinations(order, 2)):
            continue
        state, right = None, True
        for done in order:
            possible, state = register(state, done)  # type: ignore[assignment]
            right = right and possible
        if right:
            return True
    return False

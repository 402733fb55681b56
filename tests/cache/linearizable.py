"""Is a history of operations on one key linearizable? Wing and Gong's search, with what was seen already remembered.

A history is what clients saw: each operation from when it was called to when it was answered. It is linearizable if
each can be given one moment within that time so that, done one after the other at those moments, all answers are right.
An operation that was never answered may have happened at any later time, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec


class Done(msgspec.Struct, frozen=True):
    """One operation of one client, by a clock that all of them share."""

    called: float
    answered: float
    """Infinite if no answer came."""
    what: str
    given: Any = None
    answer: Any = None


Step = Callable[[Hashable, Done], tuple[bool, Hashable]]
"""Of the sequential object: whether the operation may answer so in this state, and the state after it."""


def is_linearizable(history: Sequence[Done], step: Step, initial: Hashable) -> bool:
    order = sorted(history, key=lambda done: done.called)
    everything = (1 << len(order)) - 1
    unanswered = sum(1 << n for n, done in enumerate(order) if math.isinf(done.answered))
    seen: set[tuple[int, Hashable]] = set()
    stack: list[tuple[int, Hashable]] = [(0, initial)]
    while stack:
        linearized, state = stack.pop()
        if (linearized | unanswered) == everything:
            return True
        if (linearized, state) in seen:
            continue
        seen.add((linearized, state))
        # The next one must have been called before any of those that are left was answered.
        horizon = min(done.answered for n, done in enumerate(order) if not linearized >> n & 1)
        for n, done in enumerate(order):
            if done.called > horizon:
                break
            if linearized >> n & 1:
                continue
            possible, after = step(state, done)
            if possible:
                stack.append((linearized | 1 << n, after))
    return False


def register(state: Hashable, done: Done) -> tuple[bool, Hashable]:
    """A value with get, put, delete, increment and compare-and-swap; None: nothing is there."""
    unknown = math.isinf(done.answered)
    match done.what:
        case "get":
            return unknown or done.answer == state, state
        case "put":
            return True, done.given
        case "delete":
            return unknown or done.answer == (state is not None), None
        case "incr":
            after = (state or 0) + done.given  # type: ignore[operator]
            return unknown or done.answer == after, after
        case "cas":
            expected, new = done.given
            swaps = state == expected
            return unknown or done.answer == swaps, new if swaps else state
    raise AssertionError(done.what)

"""One pattern as a bit-parallel automaton: one step a level, whatever wildcards the pattern has (R-P1)."""

from __future__ import annotations

from collections.abc import Iterable

from mpreg.pubsub.patterns import MANY, ONE, Levels

State = int
"""Bit i is set when the first i levels of the pattern may have matched what was read. 0: nothing can match any more."""


class Automaton:
    """`state = step(state, level)` from `start`; a state for which `accepts` is a match so far."""

    __slots__ = ("_accept", "_literals", "_many", "_one", "start")

    def __init__(self, pattern: Levels) -> None:
        self._many = _mask(pattern, MANY)
        self._one = _mask(pattern, ONE)
        self._literals: dict[str, int] = {}
        for at, level in enumerate(pattern):
            if level not in (ONE, MANY):
                self._literals[level] = self._literals.get(level, 0) | 1 << at
        self._accept = 1 << len(pattern)
        self.start = self._skip(1)

    def _skip(self, state: State) -> State:
        """`#` may stand for no level. A canonical pattern has no two `#` in a row, so one shift is enough."""
        return state | (state & self._many) << 1

    def step(self, state: State, level: str) -> State:
        moved = (state & (self._literals.get(level, 0) | self._one)) << 1
        return self._skip(moved | state & self._many)

    def accepts(self, state: State) -> bool:
        return bool(state & self._accept)

    def literals_of(self, state: State) -> Iterable[str] | None:
        """The only levels with which this state can go on; None when any level may do."""
        if state & (self._one | self._many):
            return None
        return [level for level, mask in self._literals.items() if state & mask]

    def matches(self, levels: Iterable[str]) -> bool:
        state = self.start
        for level in levels:
            state = self.step(state, level)
            if not state:
                return False
        return self.accepts(state)


def _mask(pattern: Levels, wanted: str) -> int:
    return sum(1 << at for at, level in enumerate(pattern) if level == wanted)

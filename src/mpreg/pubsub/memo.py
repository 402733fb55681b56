"""The matches of hot topics, remembered; a change of subscriptions costs nothing here, and touches only what it
matches.

Each entry says after which change it was found. An entry that is a few changes old is checked against the patterns
that changed since, when its topic comes again; one that is older is found anew. Entries nobody asks for are
forgotten: there are two generations, what is asked for moves to the younger one, and when that is full the older
one goes.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from mpreg.pubsub.automaton import Automaton
from mpreg.pubsub.patterns import Levels

V = TypeVar("V")

CHANGES_CHECKED: Final = 16
"""Checking an entry against as many patterns costs about as much as matching its topic again."""

CHANGES_A_GENERATION: Final = 1024
"""After as many changes, what was not asked for is forgotten, so that it holds nothing that has ended."""


class _Entry(Generic[V]):
    __slots__ = ("change", "found")

    def __init__(self, change: int, found: V) -> None:
        self.change = change
        self.found = found


class Memo(Generic[V]):
    """`get` before a match, `put` after it, `changed` whenever a pattern is added or removed."""

    def __init__(self, topics_max: int) -> None:
        self._half = max(1, topics_max // 2)
        self._young: dict[str, _Entry[V]] = {}
        self._old: dict[str, _Entry[V]] = {}
        self._change = 0
        self._changes: deque[Automaton] = deque(maxlen=CHANGES_CHECKED)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, topic: str) -> V | None:
        entry = self._young.get(topic)
        if entry is not None and entry.change == self._change:
            return entry.found
        return self._get_old(topic, entry)

    def _get_old(self, topic: str, entry: _Entry[V] | None) -> V | None:
        if entry is None:
            entry = self._old.pop(topic, None)
            if entry is None:
                return None
            self._keep(topic, entry)
        missed = self._change - entry.change
        if missed > CHANGES_CHECKED:
            return None
        if missed:
            levels = topic.split(".")
            for at in range(-missed, 0):
                if self._changes[at].matches(levels):
                    return None
            entry.change = self._change
        return entry.found

    def put(self, topic: str, found: V) -> None:
        self._keep(topic, _Entry(self._change, found))

    def changed(self, pattern: Levels) -> None:
        self._change += 1
        self._changes.append(Automaton(pattern))
        if self._change % CHANGES_A_GENERATION == 0:
            self._turn()

    def clear(self) -> None:
        self._young, self._old = {}, {}
        self._changes.clear()
        self._change += CHANGES_CHECKED + 1

    def _keep(self, topic: str, entry: _Entry[V]) -> None:
        if len(self._young) >= self._half and topic not in self._young:
            self._turn()
        self._young[topic] = entry

    def _turn(self) -> None:
        self._old, self._young = self._young, {}

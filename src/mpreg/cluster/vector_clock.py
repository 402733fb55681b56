"""Vector clocks: how many events of each node are behind a state, and so which of two states came before the other."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final, Literal

VectorClock = Mapping[str, int]
Order = Literal["equal", "before", "after", "concurrent"]

ENTRIES_MAX: Final = 1024
"""In the clock of one message; a longer one is a lie or a mistake."""
VALUE_MAX: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""


def increment(clock: VectorClock, node_id: str) -> dict[str, int]:
    """An event on this node."""
    return {**clock, node_id: clock.get(node_id, 0) + 1}


def merge(a: VectorClock, b: VectorClock) -> dict[str, int]:
    """What is behind both: the higher count of each node."""
    return {**a, **{node: max(count, a.get(node, 0)) for node, count in b.items()}}


def compare(a: VectorClock, b: VectorClock) -> Order:
    """`before`: whatever is behind `a` is behind `b`. A node that a clock does not name counts 0."""
    below = any(count > a.get(node, 0) for node, count in b.items())
    above = any(count > b.get(node, 0) for node, count in a.items())
    if below and above:
        return "concurrent"
    return "before" if below else "after" if above else "equal"


def is_valid(clock: VectorClock) -> bool:
    return len(clock) <= ENTRIES_MAX and all(0 <= count <= VALUE_MAX for count in clock.values())


class Clock:
    """This node's vector clock. It only grows, and has only entries of members, so it is as bounded as they are."""

    def __init__(self, node_id: str) -> None:
        self._me = node_id
        self.counts: dict[str, int] = {node_id: 0}

    def tick(self) -> int:
        self.counts[self._me] += 1
        return self.counts[self._me]

    def observe(self, clock: VectorClock, members: Container[str]) -> None:
        counts = self.counts
        for node, count in clock.items():
            if count > counts.get(node, 0) and node in members:
                counts[node] = count

    def forget(self, node_id: str) -> None:
        self.counts.pop(node_id, None)

    def excerpt(self, nodes: Iterable[str]) -> dict[str, int]:
        """The entries of these nodes and of this one: a message carries what concerns it, not a thousand entries."""
        found = {self._me: self.counts[self._me]}
        for node in nodes:
            if node in self.counts:
                found[node] = self.counts[node]
        return found

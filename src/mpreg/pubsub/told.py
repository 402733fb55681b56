"""What a node tells the others of its interest: each pattern, until a few wider ones must do. Pure.

Patterns are grouped by their first level. A group that is too large is told as `<first level>.#`, too many patterns
altogether as `#`: then more crosses than is wanted here, but what is told stays bounded whatever clients subscribe to.
"""

from __future__ import annotations

from typing import Final

from mpreg.pubsub.patterns import MANY, Levels

GROUP_MAX: Final = 1_024
TOLD_MAX: Final = 65_536


class Told:
    """`changed` for every change of interest; `take` what that means for the others; `everything` for a new one."""

    def __init__(self, group_max: int = GROUP_MAX, told_max: int = TOLD_MAX) -> None:
        self._group_max = group_max
        self._told_max = told_max
        self._groups: dict[str, set[Levels]] = {}
        self._wide: set[str] = set()
        """Groups that are to be told as one."""
        self._size = 0
        """Of what is to be told, group by group."""
        self._told: dict[str, set[Levels]] = {}
        """By the last `take`."""
        self._told_all = False
        self._touched: set[str] = set()

    def changed(self, pattern: Levels, wanted: bool) -> None:
        first = pattern[0]
        group = self._groups.setdefault(first, set())
        before = self._size_of(first)
        if wanted:
            group.add(pattern)
        else:
            group.discard(pattern)
        if len(group) > self._group_max:
            self._wide.add(first)
        elif len(group) <= self._group_max // 2:
            self._wide.discard(first)
        self._size += self._size_of(first) - before
        self._touched.add(first)
        if not group:
            del self._groups[first]

    @property
    def is_pending(self) -> bool:
        return bool(self._touched)

    def take(self) -> tuple[list[Levels], list[Levels]]:
        """What is new and what is gone since the last time."""
        tell_all = self._size > (self._told_max // 2 if self._told_all else self._told_max)
        touched = self._touched if tell_all is self._told_all else {*self._groups, *self._told}
        add: list[Levels] = []
        remove: list[Levels] = []
        for first in touched:
            now = set() if tell_all else self._now(first)
            told = self._told.pop(first, set())
            add += now - told
            remove += told - now
            if now:
                self._told[first] = now
        if tell_all is not self._told_all:
            one, other = (add, remove) if tell_all else (remove, add)
            if (MANY,) in other:  # somebody here wants just that
                other.remove((MANY,))
            else:
                one.append((MANY,))
            self._told_all = tell_all
        self._touched = set()
        return add, remove

    def everything(self) -> list[Levels]:
        return [(MANY,)] if self._told_all else [pattern for group in self._told.values() for pattern in group]

    def _now(self, first: str) -> set[Levels]:
        group = self._groups.get(first)
        if group is None:
            return set()
        if first in self._wide:
            return {(MANY,)} if first == MANY else {(first, MANY)}
        return set(group)

    def _size_of(self, first: str) -> int:
        return 1 if first in self._wide else len(self._groups[first])

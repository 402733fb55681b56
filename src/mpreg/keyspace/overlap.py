"""Do two patterns share a key? If so, the shortest such key.

Each pattern becomes a small automaton over sets of characters; a breadth-first walk through both at once
ends in a common key or proves that there is none.
"""

from __future__ import annotations

import string
from collections import deque
from typing import NamedTuple

from mpreg.keyspace.pattern import Pattern
from mpreg.keyspace.placeholder import STRAY_BYTES, Placeholder

DIGITS = frozenset(string.digits)
READABLE = string.ascii_lowercase + string.digits + string.ascii_uppercase + "_-.:/ "


class Chars(NamedTuple):
    """A set of characters, or all but those."""

    members: frozenset[str]
    negated: bool = False

    def common(self, other: Chars) -> Chars:
        if self.negated and other.negated:
            return Chars(self.members | other.members, True)
        if self.negated:
            return Chars(other.members - self.members)
        return Chars(self.members - other.members if other.negated else self.members & other.members)

    def example(self) -> str | None:
        """A character of the set, a readable one if there is one."""
        if not self.negated:
            return min(self.members, default=None)
        for character in READABLE:
            if character not in self.members:
                return character
        code = next(code for code in range(0x3041, 0xD000) if chr(code) not in self.members)
        return chr(code)


class Automaton:
    """States are numbers, 0 is the start; `ends` are the states after which a key is whole."""

    def __init__(self, pattern: Pattern) -> None:
        self.steps: list[list[tuple[Chars, int]]] = [[]]
        self.ends = {0}
        for part in pattern.parts:
            self.ends = self._literal(self.ends, part) if isinstance(part, str) else self._value(self.ends, part)

    def _one(self, sources: set[int], chars: Chars) -> set[int]:
        self.steps.append([])
        new = len(self.steps) - 1
        for source in sources:
            self.steps[source].append((chars, new))
        return {new}

    def _literal(self, sources: set[int], text: str) -> set[int]:
        for character in text:
            sources = self._one(sources, Chars(frozenset(character)))
        return sources

    def _many(self, sources: set[int], chars: Chars) -> set[int]:
        ends = self._one(sources, chars)
        for end in ends:
            self.steps[end].append((chars, end))
        return ends

    def _value(self, sources: set[int], placeholder: Placeholder) -> set[int]:
        match placeholder.kind:
            case "int":
                zero = self._literal(sources, "0")
                minus = self._literal(sources, "-")
                first = self._one(sources | minus, Chars(DIGITS - {"0"}))
                return zero | first | self._many(first, Chars(DIGITS))
            case "date":
                return self._date(sources)
            case "choice":
                return set().union(*(self._literal(sources, choice) for choice in placeholder.choices))
            case "path":
                return self._many(sources, Chars(STRAY_BYTES, True))
            case "bytes":
                return self._many(sources, Chars(placeholder.refused, True))
            case "str" | "word":
                return self._many(sources, Chars(placeholder.refused | STRAY_BYTES, True))

    def _date(self, sources: set[int]) -> set[int]:
        at = self._one(sources, Chars(DIGITS - {"0"}))
        for _ in range(3):
            at = self._one(at, Chars(DIGITS))
        at = self._literal(at, "-")
        month = self._one(self._literal(at, "0"), Chars(DIGITS - {"0"})) | self._one(
            self._literal(at, "1"), Chars(frozenset("012"))
        )
        at = self._literal(month, "-")
        return (
            self._one(self._literal(at, "0"), Chars(DIGITS - {"0"}))
            | self._one(self._one(at, Chars(frozenset("12"))), Chars(DIGITS))
            | self._one(self._literal(at, "3"), Chars(frozenset("01")))
        )


def shared_key(one: Pattern, other: Pattern) -> bytes | None:
    """The shortest key that fits both patterns, or None."""
    if not (one.head.startswith(other.head) or other.head.startswith(one.head)):
        return None  # most pairs end here
    left, right = Automaton(one), Automaton(other)
    came_from: dict[tuple[int, int], tuple[tuple[int, int], str]] = {}
    start = (0, 0)
    seen, walk = {start}, deque([start])
    while walk:
        at = walk.popleft()
        if at[0] in left.ends and at[1] in right.ends:
            return _spell(came_from, at)
        for chars, target in left.steps[at[0]]:
            for other_chars, other_target in right.steps[at[1]]:
                step = (target, other_target)
                character = chars.common(other_chars).example() if step not in seen else None
                if character is not None:
                    seen.add(step)
                    came_from[step] = (at, character)
                    walk.append(step)
    return None


def _spell(came_from: dict[tuple[int, int], tuple[tuple[int, int], str]], at: tuple[int, int]) -> bytes:
    characters: list[str] = []
    while at in came_from:
        at, character = came_from[at]
        characters.append(character)
    return "".join(reversed(characters)).encode("utf-8", "surrogateescape")

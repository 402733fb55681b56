"""Topics found by a pattern: what a late subscriber asks the backlog.

It gives its memory back: after everything that was added is removed, what is left equals a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from mpreg.pubsub.automaton import Automaton
from mpreg.pubsub.patterns import Levels

V = TypeVar("V")

_HERE = ""
"""The key of what ends at a node; no level is empty."""

_Node = dict[str, Any]


class TooFar(Exception):
    """A search was given up."""


class TopicTrie(Generic[V]):
    """Values by topic; a pattern finds the topics that it matches without a look at the others."""

    def __init__(self) -> None:
        self.root: _Node = {}
        self.visits = 0
        """Topics and levels looked at by all searches so far."""

    def get(self, levels: Sequence[str]) -> V | None:
        node: Any = self.root
        for level in levels:
            if not isinstance(node, dict):
                return None
            node = node.get(level)
        value: V | None = node.get(_HERE) if isinstance(node, dict) else node
        return value

    def set(self, levels: Sequence[str], value: V) -> None:
        """A topic with nothing below it is its value; one with something below keeps it under `_HERE`."""
        node = self.root
        for level in levels[:-1]:
            child = node.get(level)
            if child is None:
                child = node[level] = {}
            elif not isinstance(child, dict):
                child = node[level] = {_HERE: child}
            node = child
        last = levels[-1]
        if isinstance(node.get(last), dict):
            node[last][_HERE] = value
        else:
            node[last] = value

    def remove(self, levels: Sequence[str]) -> None:
        path: list[tuple[_Node, str]] = []
        node: Any = self.root
        for level in levels:
            path.append((node, level))
            node = node[level]
        if isinstance(node, dict):
            del node[_HERE]
        else:
            parent, level = path.pop()
            del parent[level]
        for parent, level in reversed(path):
            child = parent[level]
            if not child:
                del parent[level]
            elif len(child) == 1 and _HERE in child:
                parent[level] = child[_HERE]
                return
            else:
                return

    def matching(self, pattern: Levels, until_visit: int | None = None) -> Iterator[V]:
        """Raises `TooFar` when `visits` would pass `until_visit`."""
        automaton = Automaton(pattern)
        stack: list[tuple[Any, int]] = [(self.root, automaton.start)]
        while stack:
            node, state = stack.pop()
            self.visits += 1
            if self.visits == until_visit:
                raise TooFar
            if not isinstance(node, dict):
                if automaton.accepts(state):
                    yield node
                continue
            if automaton.accepts(state) and _HERE in node:
                yield node[_HERE]
            keys = automaton.literals_of(state)
            for key in node if keys is None else keys:
                child = node.get(key)
                if child is None or key == _HERE:
                    continue
                ahead = automaton.step(state, key)
                if ahead:
                    stack.append((child, ahead))

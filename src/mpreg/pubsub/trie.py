"""Patterns found by a topic: a trie that branches only where patterns differ.

A pattern without wildcards is one entry of a table. Any other goes down the trie, level by level, and where it is
the only one left, the rest of it is one tuple. So there are about as many nodes as there are forks, which is what a
million patterns cost; and a match looks at few of them. The form depends on what is stored, not on how it came
there: after all is removed, what is left equals a new trie.

Matching is bounded for any pattern (R-P1). Without a `#` inside, a node is reached by one path only, so at most
once. What follows a `#` is walked with the set of nodes reached so far, each at most once a level.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from mpreg.pubsub.patterns import MANY, ONE, Levels

V = TypeVar("V")

_Value = Any
"""What patterns lead to: a value, or a dict whose keys are several values. A value is no tuple, no dict, not None."""

_Leaf = tuple[Any, ...]
"""`(value, *levels that follow)`: the only pattern that goes this way. If no level follows it is the value itself."""


class _Node:
    """A fork: what goes on by a level of this name, by `*`, by `#`, and what ends here."""

    __slots__ = ("here", "kids", "many", "one")

    def __init__(self) -> None:
        self.kids: dict[str, Any] = {}
        self.one: Any = None
        self.many: Any = None
        self.here: _Value = None

    def child(self, level: str) -> Any:
        return self.one if level == ONE else self.many if level == MANY else self.kids.get(level)

    def set_child(self, level: str, child: Any) -> None:
        if level == ONE:
            self.one = child
        elif level == MANY:
            self.many = child
        elif child is None:
            self.kids = _deleted(self.kids, level)
        else:
            self.kids[level] = child

    def branches(self) -> Iterator[tuple[str, Any]]:
        yield from self.kids.items()
        if self.one is not None:
            yield ONE, self.one
        if self.many is not None:
            yield MANY, self.many

    def only(self) -> tuple[str | None, Any] | None:
        """The one thing here, as (level or None for what ends here, what); None if there are several."""
        found: list[tuple[str | None, Any]] = [(None, self.here)] if self.here is not None else []
        if len(self.kids) > 1:
            return None
        found += self.branches()
        return found[0] if len(found) == 1 else None


class PatternTrie(Generic[V]):
    """`add` and `remove` pairs of pattern and value; `match` lists the values of the patterns that match."""

    def __init__(self) -> None:
        self._exact: dict[str, _Value] = {}
        self._root = _Node()
        self.patterns = 0
        self.nodes = 1
        self._depths: Counter[int] = Counter()
        self.steps = 0
        """Nodes and levels looked at by all matches so far."""

    def __bool__(self) -> bool:
        return self.patterns > 0

    def add(self, pattern: Levels, value: V) -> bool:
        """Whether the pattern is new. Adding a pair again changes nothing."""
        if _is_exact(pattern):
            topic = ".".join(pattern)
            known = self._exact.get(topic)
            self._exact[topic] = _with(known, value)
            new = known is None
        else:
            new = self._add(pattern, value)
        if new:
            self.patterns += 1
            self._depths[len(pattern)] += 1
        return new

    def remove(self, pattern: Levels, value: V) -> bool:
        """Whether this was the pattern's last value. Raises `KeyError` if the pair is not there."""
        if _is_exact(pattern):
            topic = ".".join(pattern)
            left = _without(self._exact[topic], value)
            if left is None:
                self._exact = _deleted(self._exact, topic)
            else:
                self._exact[topic] = left
            last = left is None
        else:
            last = self._remove(pattern, value)
        if last:
            self.patterns -= 1
            self._depths[len(pattern)] -= 1
        return last

    def match(self, topic: str, levels: Sequence[str]) -> list[V]:
        """The values of all patterns that match, one that has several matching patterns as often."""
        found: list[V] = []
        value = self._exact.get(topic)
        if value is not None:
            if value.__class__ is dict:
                found.extend(value)
            else:
                found.append(value)
        count = len(levels)
        active = [self._root]
        steps = 0
        for at, level in enumerate(levels, 1):
            steps += len(active)
            ahead = []
            for node in active:
                child = node.kids.get(level)
                if child is not None:
                    if child.__class__ is _Node:
                        ahead.append(child)
                    elif child.__class__ is tuple:
                        if _fits(child, levels, at):
                            _emit(child[0], found)
                    elif at == count:
                        _emit(child, found)
                child = node.one
                if child is not None:
                    if child.__class__ is _Node:
                        ahead.append(child)
                    elif child.__class__ is tuple:
                        if _fits(child, levels, at):
                            _emit(child[0], found)
                    elif at == count:
                        _emit(child, found)
                child = node.many
                if child is not None:
                    steps += _match_many(child, levels, at - 1, found)
            if not ahead:
                break
            active = ahead
        else:
            for node in active:
                if node.here is not None:
                    _emit(node.here, found)
                if node.many is not None:
                    steps += _match_many(node.many, levels, count, found)
        self.steps += steps
        return found

    def __iter__(self) -> Iterator[Levels]:
        """Every pattern once."""
        for topic in self._exact:
            yield tuple(topic.split("."))
        yield from _walk(self._root, ())

    def shape(self) -> dict[str, float]:
        """The note's `trie_stats`, kept up with every change."""
        depths = {depth: count for depth, count in self._depths.items() if count}
        total = sum(depth * count for depth, count in depths.items())
        return {
            "node_count": self.nodes,
            "leaf_count": self.patterns,
            "max_depth": max(depths, default=0),
            "avg_depth": round(total / self.patterns, 2) if self.patterns else 0.0,
        }

    # Adding and removing. Below a `#` every level has its node, as `_match_many` keeps its place by the node alone.

    def _add(self, pattern: Levels, value: Any) -> bool:
        node, spelled = self._root, False
        for at, level in enumerate(pattern, 1):
            child = node.child(level)
            if child.__class__ is _Node:
                node, spelled = child, spelled or level == MANY
                continue
            rest = pattern[at:]
            if child is None and not spelled:
                node.set_child(level, _leaf(value, rest))
                return True
            known, known_rest = _unleaf(child)
            if child is not None and known_rest == rest:
                node.set_child(level, _leaf(_with(known, value), rest))
                return False
            fork = _Node()
            self.nodes += 1
            if child is not None:
                self._put(fork, known_rest, known, spelled or level == MANY)
            node.set_child(level, fork)
            node, spelled = fork, spelled or level == MANY
        known = node.here
        node.here = _with(known, value)
        return known is None

    def _put(self, node: _Node, rest: Levels, value: _Value, spelled: bool) -> None:
        """What was a leaf is the first pattern of a new node."""
        if spelled:
            for level in rest:
                below = _Node()
                self.nodes += 1
                node.set_child(level, below)
                node = below
            node.here = value
        elif rest:
            node.set_child(rest[0], _leaf(value, rest[1:]))
        else:
            node.here = value

    def _remove(self, pattern: Levels, value: Any) -> bool:
        path: list[tuple[_Node, str]] = []
        node: Any = self._root
        left: _Value = None
        for at, level in enumerate(pattern, 1):
            child = node.child(level)
            if child.__class__ is not _Node:
                known, known_rest = _unleaf(child)
                if child is None or known_rest != pattern[at:]:
                    raise KeyError(pattern)
                left = _without(known, value)
                node.set_child(level, None if left is None else _leaf(left, known_rest))
                break
            path.append((node, level))
            node = child
        else:
            if node.here is None:
                raise KeyError(pattern)
            left = node.here = _without(node.here, value)
        if left is None:
            self._tidy(path)
        return left is None

    def _tidy(self, path: list[tuple[_Node, str]]) -> None:
        """From the bottom up: an empty node goes; one with a single pattern becomes a leaf, unless below a `#`."""
        first_many = next((at for at, (_, level) in enumerate(path) if level == MANY), len(path))
        for at in range(len(path) - 1, -1, -1):
            parent, level = path[at]
            node = parent.child(level)
            if node.here is None and not node.kids and node.one is None and node.many is None:
                parent.set_child(level, None)
                self.nodes -= 1
            elif at <= first_many:
                leaf, nodes = _as_leaf(node)
                if leaf is None:
                    return
                parent.set_child(level, leaf)
                self.nodes -= nodes


def _deleted(table: dict[Any, Any], key: Any) -> dict[Any, Any]:
    """The table without the key. A dict keeps the room that it once needed, so a sparse one is made anew."""
    del table[key]
    return dict(table) if sys.getsizeof(table) > _BYTES_AN_ENTRY_MAX * (len(table) + 1) else table


_BYTES_AN_ENTRY_MAX: Final = 300
"""A dict takes at most 110 bytes an entry when it has just grown, but for the smallest."""


def _is_exact(pattern: Levels) -> bool:
    return ONE not in pattern and MANY not in pattern


# Values.


def _with(known: _Value, value: Any) -> _Value:
    if known is None or known is value:
        return value
    if known.__class__ is dict:
        known[value] = None
        return known
    return {known: None, value: None}


def _without(known: _Value, value: Any) -> _Value:
    """None when nothing is left."""
    if known.__class__ is not dict:
        if known is not value and known != value:
            raise KeyError(value)
        return None
    if len(known) > 2:
        return _deleted(known, value)
    del known[value]
    return next(iter(known))


def _emit(value: _Value, found: list[Any]) -> None:
    if value.__class__ is dict:
        found.extend(value)
    else:
        found.append(value)


def _leaf(value: _Value, rest: Sequence[str]) -> Any:
    return (value, *rest) if rest else value


def _unleaf(leaf: Any) -> tuple[_Value, Levels]:
    return (leaf[0], leaf[1:]) if leaf.__class__ is tuple else (leaf, ())


def _as_leaf(node: _Node) -> tuple[Any, int]:
    """The leaf that says the same as this node, and how many nodes it makes needless; None if more than one pattern
    goes through it."""
    rest: list[str] = []
    nodes = 1
    while (only := node.only()) is not None:
        level, child = only
        if level is None:
            return _leaf(child, rest), nodes
        rest.append(level)
        if child.__class__ is not _Node:
            value, known_rest = _unleaf(child)
            return _leaf(value, (*rest, *known_rest)), nodes
        node = child
        nodes += 1
    return None, 0


def _walk(node: _Node, prefix: Levels) -> Iterator[Levels]:
    if node.here is not None:
        yield prefix
    for level, child in node.branches():
        if child.__class__ is _Node:
            yield from _walk(child, (*prefix, level))
        else:
            yield (*prefix, level, *_unleaf(child)[1])


# Matching.


def _fits(leaf: _Leaf, levels: Sequence[str], at: int) -> bool:
    """Whether the rest of the leaf matches the topic from the level `at` on."""
    count = len(levels)
    wanted = 1
    for wanted in range(1, len(leaf)):
        level = leaf[wanted]
        if level == MANY:
            break
        if at == count or (level != ONE and level != levels[at]):
            return False
        at += 1
    else:
        return at == count
    return wanted == len(leaf) - 1 or _follows(leaf[wanted + 1 :], levels, at)[0]


def _follows(rest: Levels, levels: Sequence[str], at: int) -> tuple[bool, int]:
    """Whether `#` and then `rest` matches from the level `at` on; and in how many steps. Of several `#`, each takes as
    few levels as it can, and only the last one ever has to take more; so it is levels x levels at the worst."""
    count, length = len(levels), len(rest)
    back, back_at = 0, at
    want = steps = 0
    while at < count:
        steps += 1
        if want < length and rest[want] == MANY:
            want += 1
            back, back_at = want, at
        elif want < length and (rest[want] == ONE or rest[want] == levels[at]):
            want += 1
            at += 1
        else:
            back_at += 1
            want, at = back, back_at
    while want < length and rest[want] == MANY:
        want += 1
    return want == length, steps


def _match_many(child: Any, levels: Sequence[str], at: int, found: list[Any]) -> int:
    """What is below a `#` that may stand for levels from `at` on; the steps taken."""
    if child.__class__ is not _Node:
        value, rest = _unleaf(child)
        if not rest:
            _emit(value, found)
            return 1
        matched, steps = _follows(rest, levels, at)
        if matched:
            _emit(value, found)
        return 1 + steps
    steps = 0
    active: list[_Node] = [child]
    staying: dict[int, _Node] = {id(child): child}
    for level in levels[at:]:
        nodes = {id(node): node for node in active} | staying
        steps += len(nodes)
        ahead: list[_Node] = []
        for node in nodes.values():
            below = node.kids.get(level)
            if below is not None:
                ahead.append(below)
            if node.one is not None:
                ahead.append(node.one)
        active = ahead
        for node in active:
            if node.many is not None:
                staying[id(node.many)] = node.many
    ended = {id(node): node for node in active} | staying
    for node in ended.values():
        if node.here is not None:
            _emit(node.here, found)
    return steps + len(ended)

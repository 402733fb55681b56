"""Names with separators drawn as a tree: `a:b:c` and `a:b:d` share a trunk. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class _Node(Generic[T]):
    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.leaves: list[T] = []


def draw(named: Sequence[tuple[str, str, T]]) -> list[tuple[str, T | None]]:
    """Lines of (text, what stands there or None for a branch), from (name, separator, what)."""
    root: _Node[T] = _Node()
    for name, separator, what in named:
        node = root
        for part in split(name, separator):
            node = node.children.setdefault(part, _Node())
        node.leaves.append(what)
    return [line for part, node in root.children.items() for line in _lines(part, node, "", "")]


def split(name: str, separator: str) -> list[str]:
    """The levels of a name, each with the separator that ends it; one inside braces ends nothing."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(name):
        depth += (character == "{") - (character == "}")
        if character == separator and depth == 0:
            parts.append(name[start : at + 1])
            start = at + 1
    return [*parts, name[start:]] if start < len(name) else parts


def _lines(text: str, node: _Node[T], first: str, rest: str) -> list[tuple[str, T | None]]:
    while len(node.children) == 1 and not node.leaves:  # a trunk without a fork is one line
        part, node = next(iter(node.children.items()))
        text += part
    out: list[tuple[str, T | None]] = [(first + text, leaf) for leaf in node.leaves] or [(first + text, None)]
    children = list(node.children.items())
    for number, (part, child) in enumerate(children):
        last = number == len(children) - 1
        below = _lines(part, child, rest + ("└ " if last else "├ "), rest + ("  " if last else "│ "))
        out += below
    return out

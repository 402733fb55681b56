"""Which other nodes have a function, with which resources (R-R4). Pure; nodes are told apart by their session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

N = TypeVar("N")

FOUND_MAX: Final = 10_000
"""Answers that are remembered."""


class Offered(NamedTuple, Generic[N]):
    """One function of one node."""

    node: N
    locs: frozenset[str]
    idempotent: bool


class Offers(Generic[N]):
    def __init__(self) -> None:
        self._by_name: dict[str, list[Offered[N]]] = {}
        self.version = 0
        """Of what is offered."""
        self._names: dict[N, tuple[str, ...]] = {}
        self._found: dict[tuple[str, tuple[str, ...]], list[Offered[N]]] = {}

    def __len__(self) -> int:
        """Nodes."""
        return len(self._names)

    def __iter__(self) -> Iterator[N]:
        return iter(self._names)

    def set(self, node: N, offers: Iterable[tuple[str, tuple[str, ...], bool]]) -> None:
        """All that the node has: name, resources, idempotent."""
        self.remove(node)
        self._found.clear()
        names: dict[str, None] = {}
        for name, locs, idempotent in offers:
            names[name] = None
            self._by_name.setdefault(name, []).append(Offered(node, frozenset(locs), idempotent))
        self._names[node] = tuple(names)

    def remove(self, node: N) -> None:
        self.version += 1
        self._found.clear()
        for name in self._names.pop(node, ()):
            left = [offered for offered in self._by_name[name] if offered.node != node]
            if left:
                self._by_name[name] = left
            else:
                del self._by_name[name]

    def has(self, name: str) -> bool:
        """With whatever resources."""
        return name in self._by_name

    def find(self, name: str, locs: tuple[str, ...]) -> list[Offered[N]]:
        """Who has it with all these resources; each node once. The answer is remembered, so it must stay as it is."""
        found = self._found.get((name, locs))
        if found is None:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            wanted = frozenset(locs)
            offers = self._by_name.get(name, [])
            found = list({offered.node: offered for offered in offers if wanted <= offered.locs}.values())
            if found:
                self._found[name, locs] = found
        return found

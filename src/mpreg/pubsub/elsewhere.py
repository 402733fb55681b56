"""What other nodes want: from a topic to the nodes where somebody wants it, each once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.memo import Memo
from mpreg.pubsub.patterns import Levels, split_topic
from mpreg.pubsub.trie import PatternTrie

N = TypeVar("N")

NODES_SHARED_MAX = 4_096


class Elsewhere(Generic[N]):
    def __init__(self, limits: PubSubLimits) -> None:
        self._trie = PatternTrie[N]()
        self._memo = Memo[tuple[N, ...]](limits.hot_topics_max)
        self._wanted: dict[N, set[Levels]] = {}
        self._shared: dict[tuple[N, ...], tuple[N, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._trie)

    def wanted_by(self, node: N) -> set[Levels]:
        return self._wanted.get(node, set())

    def change(self, node: N, add: Iterable[Levels], remove: Iterable[Levels], *, reset: bool = False) -> None:
        if reset:
            self.forget(node)
        wanted = self._wanted.setdefault(node, set())
        for pattern in remove:
            if pattern in wanted:
                wanted.remove(pattern)
                self._trie.remove(pattern, node)
                self._memo.changed(pattern)
        for pattern in add:
            if pattern not in wanted:
                wanted.add(pattern)
                self._trie.add(pattern, node)
                self._memo.changed(pattern)

    def forget(self, node: N) -> None:
        for pattern in self._wanted.pop(node, ()):
            self._trie.remove(pattern, node)
        self._memo.clear()
        self._shared.clear()

    def match(self, topic: str) -> tuple[N, ...]:
        """Equal answers are one object, for as long as it lasts."""
        nodes = self._memo.get(topic)
        if nodes is None:
            found = tuple(dict.fromkeys(self._trie.match(topic, split_topic(topic))))
            if len(self._shared) >= NODES_SHARED_MAX:
                self._shared.clear()
            nodes = self._shared.setdefault(found, found)
            self._memo.put(topic, nodes)
        return nodes

"""A set of node ids from which a few can be drawn at random, in time that does not depend on its size."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator


class Roster:
    __slots__ = ("_at", "_ids")

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._at: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._at

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def add(self, node_id: str) -> None:
        if node_id not in self._at:
            self._at[node_id] = len(self._ids)
            self._ids.append(node_id)

    def discard(self, node_id: str) -> None:
        at = self._at.pop(node_id, None)
        if at is None:
            return
        last = self._ids.pop()
        if last != node_id:
            self._ids[at] = last
            self._at[last] = at

    def draw(self, random: random.Random, count: int, without: Collection[str] = ()) -> list[str]:
        """`count` different ones, or as many as there are."""
        ids = self._ids
        if len(ids) <= count + len(without):
            found = [each for each in ids if each not in without]
            random.shuffle(found)
            return found[:count]
        return [each for each in random.sample(ids, count + len(without)) if each not in without][:count]

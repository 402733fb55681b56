"""Lifeguard's local health: a node that misses answers which others get blames itself, and gives others more time."""

from __future__ import annotations


class Awareness:
    """`score` is 0 when all is well, and stays below `limit`."""

    __slots__ = ("_limit", "score")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.score = 0

    def worsen(self, by: int = 1) -> None:
        self.score = min(self.score + by, self._limit - 1)

    def improve(self) -> None:
        self.score = max(0, self.score - 1)

    def stretch(self, seconds: float) -> float:
        return seconds * (1 + self.score)

"""A sorted set: members by one codec, each with a score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from mpreg.errors import KeyspaceError
from mpreg.keyspace.codec import Codec
from mpreg.keyspace.commands import Commands, Scripting
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.writing import ELEMENTS_MAX, decoded, scored, some, too_large, write

T = TypeVar("T")


class ZsetKey(Generic[T]):
    def __init__(self, declaration: Declaration, name: bytes) -> None:
        assert declaration.codec is not None
        self.declaration, self.name = declaration, name
        self._codec: Codec[T] = declaration.codec

    async def add(self, store: Scripting, scores: Mapping[T, float], *, ttl_s: float | None = None) -> int:
        """How many members are new; those that were there have a new score."""
        some(scores, "member")
        flat = [part for member, score in scores.items() for part in (_score(score), self._codec.encode(member))]
        return int(await write(store, self.declaration, self.name, b"ZADD", *flat, ttl_s=ttl_s))

    async def add_score(self, store: Scripting, member: T, amount: float) -> float:
        """The score after the addition."""
        data = self._codec.encode(member)
        return float(await write(store, self.declaration, self.name, b"ZINCRBY", _score(amount), data))

    async def remove(self, store: Commands, *members: T) -> int:
        some(members, "member")
        return int(await store.command(b"ZREM", self.name, *map(self._codec.encode, members)))

    async def score(self, store: Commands, member: T) -> float | None:
        found = await store.command(b"ZSCORE", self.name, self._codec.encode(member))
        return None if found is None else float(found)

    async def size(self, store: Commands) -> int:
        return int(await store.command(b"ZCARD", self.name))

    async def lowest(self, store: Commands, count: int) -> list[tuple[T, float]]:
        """At most `count` members with the lowest scores, lowest first."""
        return await self._range(store, count, 0, count - 1)

    async def highest(self, store: Commands, count: int) -> list[tuple[T, float]]:
        """At most `count` members with the highest scores, highest first."""
        return await self._range(store, count, 0, count - 1, b"REV")

    async def between(self, store: Commands, low: float, high: float, *, count: int) -> list[tuple[T, float]]:
        """At most `count` members with scores from `low` to `high`, both included, lowest first."""
        return await self._range(store, count, _bound(low), _bound(high), b"BYSCORE", b"LIMIT", 0, count)

    async def _range(self, store: Commands, count: int, *args: Any) -> list[tuple[T, float]]:
        if not 1 <= count <= ELEMENTS_MAX:
            raise too_large(self.declaration, f"a read takes 1 to {ELEMENTS_MAX} members", ELEMENTS_MAX)
        reply = await store.command(b"ZRANGE", self.name, *args, b"WITHSCORES")
        decode = self._codec.decode
        return [(decoded(self.declaration, self.name, decode, data), score) for data, score in scored(reply)]


def _score(score: float) -> bytes:
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise KeyspaceError("KEYSPACE_UNENCODABLE", f"a score is a finite number, not {score!r:.60}", codec="score")
    return repr(float(score)).encode()


def _bound(score: float) -> bytes:
    return b"%sinf" % (b"-" if score < 0 else b"+") if math.isinf(score) else _score(score)

"""A set: each member by one codec."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from mpreg.keyspace.codec import Codec
from mpreg.keyspace.commands import Commands, Scripting
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.writing import ELEMENTS_MAX, decoded, refuse_long_read, some, write

T = TypeVar("T")

PAGE = 500


class SetKey(Generic[T]):
    def __init__(self, declaration: Declaration, name: bytes) -> None:
        assert declaration.codec is not None
        self.declaration, self.name = declaration, name
        self._codec: Codec[T] = declaration.codec

    async def add(self, store: Scripting, *members: T, ttl_s: float | None = None) -> int:
        """How many of them are new."""
        some(members, "member")
        data = [self._codec.encode(member) for member in members]
        return int(await write(store, self.declaration, self.name, b"SADD", *data, ttl_s=ttl_s))

    async def remove(self, store: Commands, *members: T) -> int:
        """How many of them were there."""
        some(members, "member")
        return int(await store.command(b"SREM", self.name, *map(self._codec.encode, members)))

    async def contains(self, store: Commands, member: T) -> bool:
        return bool(await store.command(b"SISMEMBER", self.name, self._codec.encode(member)))

    async def size(self, store: Commands) -> int:
        return int(await store.command(b"SCARD", self.name))

    async def members(self, store: Commands, *, limit: int = ELEMENTS_MAX) -> set[T]:
        """All of them; more than `limit` is KEYSPACE_TOO_LARGE."""
        await refuse_long_read(store, self.declaration, self.name, b"SCARD", limit)
        return {self._decode(data) for data in await store.command(b"SMEMBERS", self.name)}

    async def pages(self, store: Commands) -> AsyncIterator[list[T]]:
        """All members of a set of any size, in pages. One that comes or goes meanwhile may be missed or repeated."""
        cursor = b"0"
        while True:
            cursor, page = await store.command(b"SSCAN", self.name, cursor, b"COUNT", PAGE)
            yield [self._decode(data) for data in page]
            if cursor == b"0":
                return

    def _decode(self, data: bytes) -> T:
        return decoded(self.declaration, self.name, self._codec.decode, data)

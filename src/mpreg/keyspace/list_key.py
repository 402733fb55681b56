"""A list: each element by one codec. Appended at the back, taken from the front: a queue."""

from __future__ import annotations

from typing import Generic, TypeVar

from mpreg.keyspace.codec import Codec
from mpreg.keyspace.commands import Commands, Scripting
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.writing import ELEMENTS_MAX, decoded, some, too_large, write

T = TypeVar("T")


class ListKey(Generic[T]):
    def __init__(self, declaration: Declaration, name: bytes) -> None:
        assert declaration.codec is not None
        self.declaration, self.name = declaration, name
        self._codec: Codec[T] = declaration.codec

    async def append(self, store: Scripting, *elements: T, ttl_s: float | None = None) -> int:
        """The length after it."""
        return await self._push(store, b"RPUSH", elements, ttl_s)

    async def prepend(self, store: Scripting, *elements: T, ttl_s: float | None = None) -> int:
        """The length after it; the last of `elements` is then the first of the list."""
        return await self._push(store, b"LPUSH", elements, ttl_s)

    async def take_first(self, store: Commands) -> T | None:
        return self._decode_or_none(await store.command(b"LPOP", self.name))

    async def take_last(self, store: Commands) -> T | None:
        return self._decode_or_none(await store.command(b"RPOP", self.name))

    async def part(self, store: Commands, start: int = 0, stop: int = ELEMENTS_MAX) -> list[T]:
        """Elements from `start` up to, not including, `stop`, counted from the front."""
        if start < 0 or stop - start > ELEMENTS_MAX:
            raise too_large(self.declaration, f"a read takes at most {ELEMENTS_MAX} elements from 0 on", ELEMENTS_MAX)
        if stop <= start:
            return []
        return [self._decode(data) for data in await store.command(b"LRANGE", self.name, start, stop - 1)]

    async def size(self, store: Commands) -> int:
        return int(await store.command(b"LLEN", self.name))

    async def _push(self, store: Scripting, command: bytes, elements: tuple[T, ...], ttl_s: float | None) -> int:
        some(elements, "element")
        data = [self._codec.encode(element) for element in elements]
        return int(await write(store, self.declaration, self.name, command, *data, ttl_s=ttl_s))

    def _decode(self, data: bytes) -> T:
        return decoded(self.declaration, self.name, self._codec.decode, data)

    def _decode_or_none(self, data: bytes | None) -> T | None:
        return None if data is None else self._decode(data)

"""A string: one value by its codec, or a counter."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from mpreg.errors import KeyspaceError
from mpreg.keyspace.codec import Codec, integer
from mpreg.keyspace.commands import Commands, Scripting
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.writing import decoded, expiry_ms, write

T = TypeVar("T")


class StringKey(Generic[T]):
    def __init__(self, declaration: Declaration, name: bytes) -> None:
        assert declaration.codec is not None
        self.declaration, self.name = declaration, name
        self._codec: Codec[T] = declaration.codec

    async def get(self, store: Commands) -> T | None:
        """None when the key is absent."""
        data = await store.command(b"GET", self.name)
        return None if data is None else decoded(self.declaration, self.name, self._codec.decode, data)

    async def set(
        self,
        store: Commands,
        value: T,
        *,
        ttl_s: float | None = None,
        keep_ttl: bool = False,
        only_if: Literal["absent", "present"] | None = None,
    ) -> bool:
        """False when `only_if` did not hold and nothing was written. `keep_ttl` leaves the expiry as it is."""
        data = self._codec.encode(value)
        milliseconds = expiry_ms(self.declaration, ttl_s)
        options: list[Any] = []
        if keep_ttl:
            if ttl_s is not None:
                raise KeyspaceError("KEYSPACE_INVALID_TTL", "either ttl_s or keep_ttl", field="ttl_s")
            if milliseconds is not None and only_if != "present":
                # An absent key would be written without any end.
                raise KeyspaceError("KEYSPACE_INVALID_TTL", "keep_ttl needs only_if='present'", field="keep_ttl")
            options.append(b"KEEPTTL")
        elif milliseconds is not None:
            options += [b"PX", milliseconds]
        if only_if is not None:
            options.append(b"NX" if only_if == "absent" else b"XX")
        return await store.command(b"SET", self.name, data, *options) is not None

    async def take(self, store: Commands) -> T | None:
        """The value, and the key is gone."""
        data = await store.command(b"GETDEL", self.name)
        return None if data is None else decoded(self.declaration, self.name, self._codec.decode, data)


class CounterKey:
    """A whole number; an absent key is 0."""

    def __init__(self, declaration: Declaration, name: bytes) -> None:
        self.declaration, self.name = declaration, name

    async def get(self, store: Commands) -> int:
        data = await store.command(b"GET", self.name)
        return 0 if data is None else decoded(self.declaration, self.name, integer.decode, data)

    async def add(self, store: Scripting, amount: int = 1) -> int:
        """The number after the addition."""
        if type(amount) is not int:
            raise KeyspaceError("KEYSPACE_UNENCODABLE", f"a counter takes an int, not {amount!r:.60}", codec="integer")
        return int(await write(store, self.declaration, self.name, b"INCRBY", amount))

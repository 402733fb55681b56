"""A hash: the fields of a struct, or free field names with values of one codec."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from mpreg.errors import KeyspaceError
from mpreg.keyspace.codec import Codec, text
from mpreg.keyspace.commands import Commands, Scripting
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.record import Record
from mpreg.keyspace.writing import ELEMENTS_MAX, decoded, expiry_ms, pairs, refuse_long_read, renewal, some, write
from mpreg.store.script import Script

T = TypeVar("T")

REPLACE = Script.load("mpreg.keyspace", "replace.lua")


class HashKey(Generic[T]):
    def __init__(self, declaration: Declaration, name: bytes) -> None:
        assert declaration.fields is not None
        self.declaration, self.name = declaration, name
        self._record: Record[T] = declaration.fields

    async def get(self, store: Commands) -> T | None:
        """The struct; None when the key is absent. Only its own fields are read, however many others there are."""
        names = [field.name.encode() for field in self._record.fields]
        values = await store.command(b"HMGET", self.name, *names)
        found = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        if not found and not await store.command(b"EXISTS", self.name):
            return None
        return decoded(self.declaration, self.name, self._record.decode, found)

    async def put(self, store: Scripting, value: T, *, ttl_s: float | None = None) -> None:
        """Replaces all fields: nothing of an earlier value stays."""
        await self._replace(store, b"replace", self._record.encode(value), [], ttl_s)

    async def change(self, store: Scripting, *, ttl_s: float | None = None, **changes: Any) -> None:
        """Writes these fields only; None removes one. It does not ask whether the key was there."""
        some(changes, "field")
        written, removed = self._record.encode_some(changes)
        await self._replace(store, b"change", written, removed, ttl_s)

    async def field(self, store: Commands, attribute: str) -> Any:
        """One field, decoded; None when it is absent."""
        name = self._record.field(attribute).name.encode()
        data = await store.command(b"HGET", self.name, name)
        if data is None:
            return None
        return decoded(self.declaration, self.name, lambda found: self._record.decode_field(attribute, found), data)

    async def add(self, store: Scripting, attribute: str, amount: int = 1) -> int:
        """The field's number after the addition; an absent field counts from 0."""
        field = self._record.field(attribute)
        if type(amount) is not int:
            raise KeyspaceError(
                "KEYSPACE_UNENCODABLE", f"{field.name} takes an int, not {amount!r:.60}", field=field.name
            )
        if not self._record.counts(attribute):
            raise KeyspaceError("KEYSPACE_UNENCODABLE", f"{field.name} is no whole number", field=field.name)
        return int(await write(store, self.declaration, self.name, b"HINCRBY", field.name.encode(), amount))

    async def _replace(
        self, store: Scripting, mode: bytes, written: dict[bytes, bytes], removed: list[bytes], ttl_s: float | None
    ) -> None:
        flat = [part for pair in written.items() for part in pair]
        milliseconds = expiry_ms(self.declaration, ttl_s) or 0
        renew = renewal(self.declaration, ttl_s)
        await store.script(REPLACE, [self.name], [mode, renew, milliseconds, len(flat), *flat, *removed])


class FreeHashKey(Generic[T]):
    def __init__(self, declaration: Declaration, name: bytes) -> None:
        assert declaration.codec is not None
        self.declaration, self.name = declaration, name
        self._codec: Codec[T] = declaration.codec

    async def get(self, store: Commands, *, limit: int = ELEMENTS_MAX) -> dict[str, T]:
        """All fields; more than `limit` is KEYSPACE_TOO_LARGE."""
        await refuse_long_read(store, self.declaration, self.name, b"HLEN", limit)
        fields = pairs(await store.command(b"HGETALL", self.name))
        return decoded(self.declaration, self.name, self._all, fields)

    def _all(self, fields: dict[bytes, bytes]) -> dict[str, T]:
        return {text.decode(name): self._codec.decode(data) for name, data in fields.items()}

    async def field(self, store: Commands, field: str) -> T | None:
        data = await store.command(b"HGET", self.name, text.encode(field))
        return None if data is None else decoded(self.declaration, self.name, self._codec.decode, data)

    async def set(self, store: Scripting, fields: dict[str, T], *, ttl_s: float | None = None) -> int:
        """How many of the fields are new."""
        some(fields, "field")
        flat = [part for name, value in fields.items() for part in (text.encode(name), self._codec.encode(value))]
        return int(await write(store, self.declaration, self.name, b"HSET", *flat, ttl_s=ttl_s))

    async def add(self, store: Scripting, field: str, amount: int = 1) -> int:
        if type(amount) is not int or self._codec.name != "integer":
            raise KeyspaceError("KEYSPACE_UNENCODABLE", "only an int can be added, to a field of integers", field=field)
        return int(await write(store, self.declaration, self.name, b"HINCRBY", text.encode(field), amount))

    async def remove(self, store: Commands, *fields: str) -> int:
        some(fields, "field")
        return int(await store.command(b"HDEL", self.name, *map(text.encode, fields)))

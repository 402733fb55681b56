"""A stream: entries that are structs, cut to about as many as declared."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

from mpreg.errors import KeyspaceError
from mpreg.keyspace.commands import Commands, Scripting
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.record import Record
from mpreg.keyspace.writing import ELEMENTS_MAX, decoded, pairs, too_large, write

T = TypeVar("T")

ENTRY_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?", re.ASCII)


class StreamKey(Generic[T]):
    def __init__(self, declaration: Declaration, name: bytes) -> None:
        assert declaration.fields is not None
        self.declaration, self.name = declaration, name
        self._record: Record[T] = declaration.fields

    async def append(self, store: Scripting, entry: T, *, ttl_s: float | None = None) -> str:
        """The id that the store gave the entry."""
        fields = [part for pair in self._record.encode(entry).items() for part in pair]
        limit = self.declaration.entries_max
        cut: list[Any] = [b"MAXLEN", b"~", limit] if limit is not None else []
        found = await write(store, self.declaration, self.name, b"XADD", *cut, b"*", *fields, ttl_s=ttl_s)
        return str(found.decode())

    async def after(self, store: Commands, entry_id: str = "0", *, count: int = 100) -> list[tuple[str, T]]:
        """At most `count` entries that came after `entry_id`, oldest first."""
        if not 1 <= count <= ELEMENTS_MAX:
            raise too_large(self.declaration, f"a read takes 1 to {ELEMENTS_MAX} entries", ELEMENTS_MAX)
        if ENTRY_ID.fullmatch(entry_id) is None:
            raise KeyspaceError("KEYSPACE_INVALID_VALUE", f"{entry_id!r:.60} is no id of an entry", field="entry_id")
        return self._entries(await store.command(b"XRANGE", self.name, f"({entry_id}", b"+", b"COUNT", count))

    async def latest(self, store: Commands, *, count: int = 1) -> list[tuple[str, T]]:
        """At most `count` entries, newest first."""
        if not 1 <= count <= ELEMENTS_MAX:
            raise too_large(self.declaration, f"a read takes 1 to {ELEMENTS_MAX} entries", ELEMENTS_MAX)
        return self._entries(await store.command(b"XREVRANGE", self.name, b"+", b"-", b"COUNT", count))

    async def size(self, store: Commands) -> int:
        return int(await store.command(b"XLEN", self.name))

    def _entries(self, reply: list[Any]) -> list[tuple[str, T]]:
        decode = self._record.decode
        return [(id.decode(), decoded(self.declaration, self.name, decode, pairs(fields))) for id, fields in reply]

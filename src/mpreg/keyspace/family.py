"""A declared family of keys, as programs use it: build a key, read one back, and reach what is stored under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.placeholder import Value

K = TypeVar("K")


class Family(Generic[K]):
    """`K` is the typed handle of one key, with the operations of its Redis type."""

    def __init__(self, declaration: Declaration, handle: Callable[[Declaration, bytes], K]) -> None:
        self.declaration = declaration
        self._handle = handle

    def __repr__(self) -> str:
        return f"Family({self.declaration.full_name}, {self.declaration.shown})"

    def key(self, **values: Any) -> bytes:
        """The bytes of a key, for commands of your own; one value for each placeholder."""
        return self.declaration.pattern.build(values)

    def at(self, **values: Any) -> K:
        """The handle of one key."""
        return self._handle(self.declaration, self.declaration.pattern.build(values))

    def named(self, key: bytes) -> K:
        """The handle of a key that came from elsewhere; the caller knows that it belongs to this family."""
        return self._handle(self.declaration, key)

    def parse(self, key: bytes) -> dict[str, Value] | None:
        """The values in a key, or None when it is not of this family."""
        return self.declaration.pattern.parse(key)

    def glob(self, **known: Any) -> bytes:
        """For SCAN MATCH and keyspace events; it may match more than the family, so parse what it finds."""
        return self.declaration.pattern.glob(**known)

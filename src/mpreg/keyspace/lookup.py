"""From a key to its declaration in a few lookups: families are filed under the bytes that their keys begin with."""

from __future__ import annotations

from mpreg.keyspace.declaration import Declaration, Match


class Lookup:
    def __init__(self) -> None:
        self._by_head: dict[bytes, list[Declaration]] = {}
        self._lengths: tuple[int, ...] = ()

    def add(self, declaration: Declaration) -> None:
        self._by_head.setdefault(declaration.pattern.head, []).append(declaration)
        self._lengths = tuple(sorted({len(head) for head in self._by_head}, reverse=True))

    def find(self, key: bytes) -> Match | None:
        """No two patterns share a key, so the order of looking decides nothing."""
        text: str | None = None
        for length in self._lengths:
            for declaration in self._by_head.get(key[:length], ()):
                if text is None:
                    text = key.decode("utf-8", "surrogateescape")
                values = declaration.pattern.parse_text(text)
                if values is not None:
                    return Match(declaration, values)
        return None

"""Several keyspaces as one, for tools: no two of them share a key, and every relation leads somewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from mpreg.errors import KeyspaceError
from mpreg.keyspace.declaration import Declaration, Match
from mpreg.keyspace.keyspace import Keyspace, refuse_shared
from mpreg.keyspace.lookup import Lookup
from mpreg.keyspace.pattern import escape_glob


class Catalog:
    """Raises KEYSPACE_AMBIGUOUS or KEYSPACE_INVALID_DECLARATION when the keyspaces don't fit together."""

    def __init__(self, keyspaces: Iterable[Keyspace]) -> None:
        self.keyspaces = tuple(keyspaces)
        names = [keyspace.name for keyspace in self.keyspaces]
        if len(set(names)) != len(names):
            raise KeyspaceError(
                "KEYSPACE_INVALID_SCHEMA", f"two keyspaces have the same name: {', '.join(sorted(names))}", path="name"
            )
        self._lookup = Lookup()
        for keyspace in self.keyspaces:
            keyspace.check()
            for declaration in keyspace.declarations.values():
                self._lookup.add(declaration)
        for one, other in combinations(self.keyspaces, 2):
            for left in one.declarations.values():
                for right in other.declarations.values():
                    refuse_shared(left, right)

    def __iter__(self) -> Iterator[Declaration]:
        for keyspace in self.keyspaces:
            yield from keyspace.declarations.values()

    def family_of(self, key: bytes) -> Match | None:
        return self._lookup.find(key)

    def target(self, owner: Declaration, name: str) -> Declaration:
        """The family that a relation of `owner` leads to."""
        return next(keyspace for keyspace in self.keyspaces if keyspace.name == owner.keyspace).declarations[name]

    def select(self, names: Iterable[str]) -> tuple[Declaration, ...]:
        """Families by name, `family` or `keyspace/family`; all of them when no name is given."""
        wanted = list(names)
        if not wanted:
            return tuple(self)
        chosen: dict[str, Declaration] = {}
        for name in wanted:
            found = [one for one in self if name in (one.name, one.full_name)]
            if not found:
                known = ", ".join(sorted(one.name for one in self)) or "none"
                raise KeyspaceError(
                    "KEYSPACE_INVALID_QUERY",
                    f"no family is called {name!r:.100}; there are: {known:.600}",
                    field="family",
                )
            chosen.update((one.full_name, one) for one in found)
        return tuple(chosen.values())


def common_glob(declarations: Iterable[Declaration]) -> bytes:
    """One pattern for SCAN that covers all keys of these families, as narrow as a common beginning makes it."""
    declarations = list(declarations)
    if len(declarations) == 1:
        return declarations[0].pattern.glob()
    return escape_glob(common_head([one.pattern.head for one in declarations])) + b"*"


def common_head(heads: list[bytes]) -> bytes:
    """What all of them begin with."""
    if not heads:
        return b""
    first, last = min(heads), max(heads)  # what these two share, all in between share
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same]

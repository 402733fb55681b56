"""Which keys a tool works on: those that match a glob, or those of some declared families."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mpreg.keyspace.catalog import Catalog, common_glob
from mpreg.keyspace.declaration import Declaration

UNDECLARED = "(unknown)"


class Selection(msgspec.Struct, frozen=True):
    """`families` are the names of the only families that are meant; empty: whatever matches."""

    catalog: Catalog
    match: bytes
    families: tuple[str, ...] = ()
    by_glob: bool = True
    """`match` was given; else it only covers the families."""

    def declaration(self, key: bytes) -> Declaration | None:
        found = self.catalog.family_of(key)
        return found.declaration if found is not None else None

    def accepts(self, key: bytes) -> bool:
        if not self.families:
            return True
        declaration = self.declaration(key)
        return declaration is not None and declaration.full_name in self.families


def select(catalog: Catalog, pattern: bytes | None, families: Sequence[str]) -> Selection:
    """By a glob, by families, or by both: then keys of these families that match."""
    if not families:
        return Selection(catalog, pattern if pattern is not None else b"*")
    chosen = catalog.select(families)
    match = pattern if pattern is not None else common_glob(chosen)
    return Selection(catalog, match, tuple(one.full_name for one in chosen), by_glob=pattern is not None)

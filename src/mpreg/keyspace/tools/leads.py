"""Where a key leads: the keys of other families that its own name or what is stored under it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mpreg.errors import KeyspaceError
from mpreg.keyspace.catalog import Catalog
from mpreg.keyspace.declaration import Declaration, Match
from mpreg.keyspace.placeholder import Value
from mpreg.keyspace.relation import Relation, target_values


class Lead(msgspec.Struct, frozen=True):
    """`key` is None when something is named that can be no key of the target; `fault` then says why."""

    relation: Relation
    target: Declaration
    said: str
    """Which place named it: `field.process`, `member 123`."""
    key: bytes | None
    values: dict[str, Value]
    fault: str | None = None


def leads(catalog: Catalog, match: Match, decoded: list[Any]) -> Iterator[Lead]:
    """`decoded` as `contents.decode` gives it; relations that read the key alone need none."""
    for one in match.declaration.relations:
        target = catalog.target(match.declaration, one.target)
        for value in decoded if one.reads_value else [None]:
            said = ", ".join(one.sources.values())
            if one.of_members:
                said += f" {value!r:.60}"
            try:
                values = target_values(one, target.pattern, match.values, value)
                if values is None:
                    continue
                yield Lead(one, target, said, target.pattern.build(values), values)
            except KeyspaceError as error:
                yield Lead(one, target, said, None, {}, error.message)

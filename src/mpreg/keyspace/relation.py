"""How the keys of one family name the keys of another: the status of an issue names a process, a set its members.

    Relation("process:info", process="field.processId")     the field of a hash or stream entry
    Relation("issue:status", number="member")               each member of a set, list or sorted set
    Relation("issue:status", number="key.number")           a placeholder of this family's own key
    Relation("task:info", task="value.task.id")             the value of a string, or a place in its JSON

`find` follows relations, `lint` reports those that lead nowhere (unless `required=False`), `docs` draws them.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from mpreg.errors import KeyspaceError
from mpreg.keyspace.pattern import Pattern
from mpreg.keyspace.placeholder import Placeholder, Value, from_words

ORIGINS = ("key", "field", "member", "value")


class Relation(msgspec.Struct, frozen=True):
    """`sources` says for each placeholder of the target where its value comes from."""

    target: str
    sources: dict[str, str]
    required: bool = True

    @property
    def reads_value(self) -> bool:
        """False when the key alone says where it leads."""
        return any(origin_of(source) != "key" for source in self.sources.values())

    @property
    def of_members(self) -> bool:
        return any(origin_of(source) == "member" for source in self.sources.values())


def relation(target: str, *, required: bool = True, **sources: str) -> Relation:
    for source in sources.values():
        if origin_of(source) not in ORIGINS or (origin_of(source) in ("key", "field") and "." not in source):
            raise KeyspaceError(
                "KEYSPACE_INVALID_DECLARATION",
                f"a relation reads key.<placeholder>, field.<name>, member or value, not {source!r:.60}",
                field="relations",
            )
    return Relation(target, sources, required)


def origin_of(source: str) -> str:
    return source.partition(".")[0]


def check_target(owner: str, one: Relation, target: Pattern | None, own: Pattern) -> None:
    """Raise what is wrong with a relation, once the target's declaration is known."""
    why = None
    if target is None:
        why = f"there is no family {one.target!r:.100}"
    else:
        wanted = {placeholder.name for placeholder in target.placeholders}
        if one.sources.keys() != wanted:
            why = f"{one.target} takes {', '.join(sorted(wanted)) or 'no values'}, not {', '.join(one.sources)}"
    names = {placeholder.name for placeholder in own.placeholders}
    for source in one.sources.values():
        origin, _, rest = source.partition(".")
        if origin == "key" and rest not in names:
            why = f"its key has no placeholder {rest!r:.60}"
    if why is not None:
        raise KeyspaceError("KEYSPACE_INVALID_DECLARATION", f"relation of {owner}: {why}", field="relations")


def target_values(
    one: Relation, target: Pattern, key_values: Mapping[str, Value], value: Any = None
) -> dict[str, Value] | None:
    """The values of the target's key; None when the value names nothing (a field that is absent).

    `value` is what is stored: a struct or dict of fields, one member, or the decoded value of a string.
    Raises KEYSPACE_INVALID_VALUE when something is named that can be no key of the target.
    """
    found: dict[str, Value] = {}
    for placeholder in target.placeholders:
        source = one.sources[placeholder.name]
        origin, _, path = source.partition(".")
        named = key_values.get(path) if origin == "key" else walk_into(value, path.split(".") if path else [])
        if named is None or named is msgspec.UNSET or named == "":
            return None
        fitting = fit(placeholder, named)
        if fitting is None:
            raise KeyspaceError(
                "KEYSPACE_INVALID_VALUE",
                f"{source} is {named!r:.60}, which is no {placeholder.spelled} for {one.target}",
                field=source,
            )
        found[placeholder.name] = fitting
    return found


def walk_into(value: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, msgspec.Struct):
            names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
            value = getattr(value, names.get(step, step), None)
        else:
            return None
    return value


def fit(placeholder: Placeholder, named: Any) -> Value | None:
    """`named` as a value of the placeholder: an id is a number here and text there."""
    match placeholder.kind, named:
        case "bytes", bytes():
            return named
        case _, bytes():
            text = named.decode("utf-8", "surrogateescape")
        case "date", datetime.datetime():
            return None
        case _, datetime.date():
            text = named.isoformat()
        case _, bool():
            return None
        case _, str() | int():
            text = str(named)
        case _:
            return None
    return from_words(placeholder, text)

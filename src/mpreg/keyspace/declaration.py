"""What is declared of one family of keys: its pattern, type, life, contents, protection, and where it leads."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

import msgspec

from mpreg.errors import KeyspaceError
from mpreg.keyspace.codec import Codec
from mpreg.keyspace.pattern import Pattern
from mpreg.keyspace.placeholder import Placeholder, Value
from mpreg.keyspace.record import Record
from mpreg.keyspace.relation import Relation, check_target, origin_of
from mpreg.keyspace.ttl import Ttl

RedisType = Literal["string", "hash", "set", "list", "zset", "stream"]
Protection = Literal["none", "state", "lock"]
TYPES: tuple[RedisType, ...] = get_args(RedisType)
PROTECTIONS: tuple[Protection, ...] = get_args(Protection)
FAMILY_NAME = re.compile(r"[^\s{}/]{1,200}")


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """`codec` is that of a string's value, of each member or element, or of each field of a hash with free field
    names; `fields` are the fields of a hash or stream entry as a struct.

    `protection`: tools that delete leave "lock" and "state" alone unless told otherwise by name; a lock never lacks
    a TTL. `counter`: a string that INCR changes. `entries_max`: a stream is cut to about so many entries.
    `alias_of`: this key repeats what the named family holds under another name. `also`: other types that such a key
    may have; their contents are shown as they are.
    """

    name: str
    keyspace: str
    pattern: Pattern
    type: RedisType
    about: str = ""
    ttl: Ttl | None = None
    codec: Codec[Any] | None = None
    fields: Record[Any] | None = None
    protection: Protection = "none"
    relations: tuple[Relation, ...] = ()
    counter: bool = False
    entries_max: int | None = None
    alias_of: str | None = None
    also: tuple[RedisType, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.keyspace}/{self.name}"

    @property
    def shown(self) -> str:
        """The pattern as people know it, prefix and all."""
        return self.pattern.prefix.replace("{", "{{").replace("}", "}}") + self.pattern.text

    @property
    def hash_tag(self) -> str | None:
        """What decides the cluster slot, if not the whole key: `{queue}` of `{{{queue}}}:ready`."""
        shown = "".join(part if isinstance(part, str) else f"\0{part.name}\0" for part in self.pattern.parts)
        start = shown.find("{")
        end = shown.find("}", start + 1)
        return re.sub(r"\0(\w+)\0", r"{\1}", shown[start + 1 : end]) if 0 <= start < end - 1 else None


class Match(msgspec.Struct, frozen=True):
    """A key read back: its declaration and the values of its placeholders."""

    declaration: Declaration
    values: dict[str, Value]


def family_name(pattern: Pattern, given: str | None) -> str:
    """The literal parts of the pattern, unless a name is given."""
    name = given if given is not None else _literal_name(pattern)
    if FAMILY_NAME.fullmatch(name) is None:
        raise invalid("name", f"{pattern.text!r:.100} needs a name of its own: {name!r:.60} is none")
    return name


def _literal_name(pattern: Pattern) -> str:
    parts = [part for part in pattern.parts if isinstance(part, str)]
    if parts and isinstance(pattern.parts[0], str):
        parts[0] = parts[0].removeprefix(pattern.prefix)
    words = [word for part in parts for word in part.strip("{}").split(pattern.separator) if word]
    return pattern.separator.join(words).replace("{", "").replace("}", "")


def check(declaration: Declaration) -> None:
    """Raise what contradicts itself within one declaration."""
    keyed = declaration.type in ("hash", "stream")
    if declaration.type not in TYPES:
        raise invalid("type", f"{declaration.type!r:.40} is no type; there are {', '.join(TYPES)}")
    if declaration.type in declaration.also or not set(declaration.also) <= set(TYPES):
        raise invalid("also", f"other types than {declaration.type}, of {', '.join(TYPES)}")
    if declaration.protection not in PROTECTIONS:
        raise invalid("protection", f"{declaration.protection!r:.40} is none of {', '.join(PROTECTIONS)}")
    if declaration.protection == "lock" and (declaration.ttl is None or not declaration.ttl.required):
        raise invalid("ttl", f"{declaration.name} is a lock, and there is no lock without a TTL")
    if declaration.fields is not None and not keyed:
        raise invalid("fields", f"a {declaration.type} has no fields; give it a codec")
    if declaration.fields is None and declaration.codec is None:
        raise invalid("codec", f"{declaration.name} needs {'fields' if keyed else 'a codec'}")
    if declaration.fields is not None and declaration.codec is not None:
        raise invalid("codec", f"{declaration.name} has fields, so it takes no codec")
    if declaration.counter and declaration.type != "string":
        raise invalid("counter", "a counter is a string")
    limit = declaration.entries_max
    if limit is not None and (declaration.type != "stream" or not 1 <= limit <= 100_000_000):
        raise invalid("entries_max", "a stream may be cut to 1 … 100,000,000 entries, other types can't")
    for one in declaration.relations:
        for source in one.sources.values():
            if origin_of(source) not in ("key", ORIGIN_OF_TYPE[declaration.type]):
                raise invalid("relations", f"a {declaration.type} has no {source!r:.60}")


ORIGIN_OF_TYPE: dict[str, str] = {
    "string": "value",
    "hash": "field",
    "stream": "field",
    "set": "member",
    "list": "member",
    "zset": "member",
}


def check_relations(declarations: dict[str, Declaration]) -> None:
    """Raise for a relation or alias that leads to no family, once all of a keyspace are declared."""
    for declaration in declarations.values():
        for one in declaration.relations:
            target = declarations.get(one.target)
            check_target(declaration.name, one, target.pattern if target else None, declaration.pattern)
        if declaration.alias_of is not None and declaration.alias_of not in declarations:
            raise invalid("alias_of", f"{declaration.name}: there is no family {declaration.alias_of!r:.100}")


def invalid(field: str, why: str) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_INVALID_DECLARATION", why, field=field)


def placeholders(declaration: Declaration) -> tuple[Placeholder, ...]:
    return declaration.pattern.placeholders

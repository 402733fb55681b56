"""`schema.json`: the declarations as data, for programs in other languages, and back into declarations without Python.

    {"mpreg_schema": 1, "keyspaces": [{"name", "prefix", "separator", "about", "families": […], "channels": […]}]}

A family's `key` is its pattern already taken apart, in order: literal text, or a placeholder with its name and kind, so
that a reader needs no parser: join the parts to build a key. `regex` reads one back (group n is the nth placeholder).
Shapes of values are JSON Schema. A codec of Python functions (`custom`) is read back as plain bytes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from mpreg.errors import KeyspaceError
from mpreg.keyspace.channel import Channel
from mpreg.keyspace.codec import Codec, from_schema
from mpreg.keyspace.declaration import Declaration, Protection, RedisType, family_name
from mpreg.keyspace.keyspace import Keyspace
from mpreg.keyspace.pattern import Pattern, parse_pattern
from mpreg.keyspace.placeholder import regex
from mpreg.keyspace.record import record_from_schema
from mpreg.keyspace.relation import relation
from mpreg.keyspace.ttl import Ttl

VERSION = 1
FILE_BYTES_MAX = 16 * 1024 * 1024


class SchemaCodec(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    shape: dict[str, Any] | None = None


class SchemaHole(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    kind: str
    choices: list[str] = []


Key: TypeAlias = "list[str | SchemaHole]"


class SchemaRelation(msgspec.Struct, frozen=True):
    target: str
    sources: dict[str, str]
    required: bool = True


class SchemaFamily(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`key` and `regex` repeat what `pattern` says; only `pattern` is read back. `ttl` is a `Ttl`, which refuses what
    contradicts itself, so it is read once its place in the file is known."""

    name: str
    pattern: str
    prefix: str | None = None  # if it is not that of the keyspace
    key: Key = []
    regex: str = ""
    type: RedisType
    about: str = ""
    ttl: dict[str, Any] | None = None
    codec: SchemaCodec | None = None
    fields: dict[str, Any] | None = None
    protection: Protection = "none"
    relations: list[SchemaRelation] = []
    counter: bool = False
    entries_max: int | None = None
    alias_of: str | None = None
    also: tuple[RedisType, ...] = ()


class SchemaChannel(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    name: str
    pattern: str
    key: Key = []
    regex: str = ""
    codec: SchemaCodec
    about: str = ""


class SchemaKeyspace(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    prefix: str = ""
    separator: str = ":"
    about: str = ""
    families: list[SchemaFamily] = []
    channels: list[SchemaChannel] = []


class Schema(msgspec.Struct, frozen=True):
    mpreg_schema: int
    keyspaces: list[SchemaKeyspace]


# --- out --------------------------------------------------------------------------------------------------------------


def schema_of(keyspaces: tuple[Keyspace, ...]) -> Schema:
    return Schema(VERSION, [_keyspace(one) for one in keyspaces])


def dump(keyspaces: tuple[Keyspace, ...]) -> bytes:
    """The text of a schema file."""
    return msgspec.json.format(msgspec.json.encode(schema_of(keyspaces)), indent=2) + b"\n"


def _keyspace(one: Keyspace) -> SchemaKeyspace:
    return SchemaKeyspace(
        name=one.name,
        prefix=one.prefix,
        separator=one.separator,
        about=one.about,
        families=[_family(declaration, one.prefix) for declaration in one.declarations.values()],
        channels=[_channel(channel) for channel in one.channels.values()],
    )


def _family(one: Declaration, prefix: str) -> SchemaFamily:
    return SchemaFamily(
        name=one.name,
        pattern=one.pattern.text,
        prefix=one.pattern.prefix if one.pattern.prefix != prefix else None,
        key=_parts(one.pattern),
        regex=portable_regex(one.pattern),
        type=one.type,
        about=one.about,
        ttl=msgspec.to_builtins(one.ttl) if one.ttl is not None else None,
        codec=_codec(one.codec) if one.codec is not None else None,
        fields=one.fields.shape if one.fields is not None else None,
        protection=one.protection,
        relations=[SchemaRelation(to.target, to.sources, to.required) for to in one.relations],
        counter=one.counter,
        entries_max=one.entries_max,
        alias_of=one.alias_of,
        also=one.also,
    )


def _channel(one: Channel[Any]) -> SchemaChannel:
    return SchemaChannel(
        name=one.name,
        pattern=one.pattern.text,
        key=_parts(one.pattern),
        regex=portable_regex(one.pattern),
        codec=_codec(one.codec),
        about=one.about,
    )


def _codec(codec: Codec[Any]) -> SchemaCodec:
    return SchemaCodec(codec.name, codec.shape)


def _parts(pattern: Pattern) -> Key:
    return [
        part if isinstance(part, str) else SchemaHole(part.name, part.kind, list(part.choices))
        for part in pattern.parts
    ]


def portable_regex(pattern: Pattern) -> str:
    """For ECMAScript, Go and Python alike, on the key as UTF-8 text. It says nothing of bytes that are no text."""
    out = []
    for part in pattern.parts:
        if isinstance(part, str):
            out.append("".join(_literal(character) for character in part))
        elif part.kind in ("str", "word", "bytes"):
            out.append("([^" + "".join(_literal(character) for character in sorted(part.refused)) + "]+)")
        elif part.kind == "path":
            out.append(r"([\s\S]+)")
        else:
            out.append("(" + regex(part) + ")")
    return "^" + "".join(out) + "$"


def _literal(character: str) -> str:
    if character.isascii() and not character.isprintable():
        return f"\\x{ord(character):02x}"
    return "\\" + character if character in r"\^$.|?*+()[]{}-/" else character


# --- back -------------------------------------------------------------------------------------------------------------


def load_schema(data: bytes) -> tuple[Keyspace, ...]:
    """The keyspaces of a schema file, checked as when they are declared in Python. Raises KEYSPACE_INVALID_SCHEMA."""
    if len(data) > FILE_BYTES_MAX:
        raise _invalid(f"a schema has at most {FILE_BYTES_MAX} bytes", "")
    try:
        schema = msgspec.json.decode(data, type=Schema)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$")
        raise _invalid(said, path.rstrip("`").lstrip(".")) from None
    except msgspec.DecodeError as error:
        raise _invalid(f"it is not JSON: {error}", "") from None
    if schema.mpreg_schema != VERSION:
        raise _invalid(f"version {schema.mpreg_schema}; this program reads {VERSION}", "mpreg_schema")
    return tuple(_load_keyspace(one, f"keyspaces[{index}]") for index, one in enumerate(schema.keyspaces))


def _load_keyspace(one: SchemaKeyspace, path: str) -> Keyspace:
    at = path
    try:
        keyspace = Keyspace(one.name, prefix=one.prefix, separator=one.separator, about=one.about)
        for index, family in enumerate(one.families):
            at = f"{path}.families[{index}]"
            keyspace.add(_load_family(keyspace, family))
        for index, channel in enumerate(one.channels):
            at = f"{path}.channels[{index}]"
            keyspace.add_channel(_load_channel(keyspace, channel))
        at = path
        keyspace.check()
    except KeyspaceError as error:
        if error.code == "KEYSPACE_INVALID_SCHEMA":
            raise
        raise _invalid(error.message, at, cause=error.code) from None
    return keyspace


def _load_family(keyspace: Keyspace, one: SchemaFamily) -> Declaration:
    prefix = keyspace.prefix if one.prefix is None else one.prefix
    pattern = parse_pattern(one.pattern, separator=keyspace.separator, prefix=prefix)
    return Declaration(
        name=family_name(pattern, one.name),
        keyspace=keyspace.name,
        pattern=pattern,
        type=one.type,
        about=one.about,
        ttl=_load_ttl(one.ttl) if one.ttl is not None else None,
        codec=from_schema(one.codec.name, one.codec.shape) if one.codec is not None else None,
        fields=record_from_schema(one.fields) if one.fields is not None else None,
        protection=one.protection,
        relations=tuple(relation(to.target, required=to.required, **to.sources) for to in one.relations),
        counter=one.counter,
        entries_max=one.entries_max,
        alias_of=one.alias_of,
        also=one.also,
    )


def _load_ttl(data: dict[str, Any]) -> Ttl:
    try:
        return msgspec.convert(data, Ttl)
    except msgspec.ValidationError as error:
        raise KeyspaceError("KEYSPACE_INVALID_DECLARATION", f"ttl: {error}", field="ttl") from None


def _load_channel(keyspace: Keyspace, one: SchemaChannel) -> Channel[Any]:
    pattern = parse_pattern(one.pattern, separator=keyspace.separator, prefix=keyspace.prefix)
    return Channel(
        name=family_name(pattern, one.name),
        keyspace=keyspace.name,
        pattern=pattern,
        codec=from_schema(one.codec.name, one.codec.shape),
        about=one.about,
    )


def _invalid(why: str, path: str, **details: Any) -> KeyspaceError:
    where = f" at {path}" if path else ""
    return KeyspaceError("KEYSPACE_INVALID_SCHEMA", f"the schema can't be read{where}: {why}", path=path, **details)

"""The declarations for people: one Markdown page, in the order in which they were declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mpreg.keyspace.channel import Channel
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.keyspace import Keyspace
from mpreg.keyspace.placeholder import Placeholder
from mpreg.keyspace.ttl import Ttl

KINDS = {
    "str": "text",
    "word": "text without white space",
    "int": "whole number",
    "date": "date (2025-06-19)",
    "bytes": "any bytes",
    "path": "the rest of the key, any text",
}


def markdown(keyspaces: Iterable[Keyspace]) -> str:
    return "\n".join(line for keyspace in keyspaces for line in _keyspace(keyspace)).rstrip() + "\n"


def _keyspace(keyspace: Keyspace) -> Iterator[str]:
    yield f"# Keys of {_plain(keyspace.name)}"
    yield ""
    if keyspace.about:
        yield from (_plain(keyspace.about), "")
    if keyspace.prefix:
        yield from (f"Every key begins with {_code(keyspace.prefix)}.", "")
    yield from ("| key | type | lives | |", "|---|---|---|---|")
    for one in keyspace.declarations.values():
        about = _cell(_plain(_first_sentence(one.about)))
        yield f"| {_cell(_code(one.shown))} | {_type(one)} | {life(one.ttl)} | {about} |"
    yield ""
    for one in keyspace.declarations.values():
        yield from _family(one)
    if keyspace.channels:
        yield from ("## Channels", "", "| channel | message | |", "|---|---|---|")
        for channel in keyspace.channels.values():
            yield f"| {_cell(_code(_shown(channel)))} | {channel.codec.name} | {_cell(_plain(channel.about))} |"
        yield ""


def _family(one: Declaration) -> Iterator[str]:
    yield from (f"## {_plain(one.name)}", "", _code(one.shown), "")
    if one.about:
        yield from (_plain(one.about), "")
    for placeholder in one.pattern.placeholders:
        yield f"- {_code('{' + placeholder.name + '}')}: {_kind(placeholder)}"
    yield f"- type: {_type(one)}"
    yield f"- lives: {life(one.ttl)}"
    if one.codec is not None:
        yield f"- {_holder(one)}: {one.codec.name}{_shape(one.codec.shape)}"
    if one.hash_tag is not None:
        yield f"- cluster: keys with the same {_code(one.hash_tag)} are in one slot"
    if one.entries_max is not None:
        yield f"- cut to about {one.entries_max:,} entries"
    if one.protection != "none":
        yield f"- protected: {one.protection}; tools that delete leave it alone unless told otherwise"
    if one.alias_of is not None:
        yield f"- another name for {_plain(one.alias_of)}"
    for to in one.relations:
        needed = "" if to.required else " (may be absent)"
        places = ", ".join(f"{source} is its {name}" for name, source in to.sources.items())
        yield f"- leads to {_plain(to.target)}: {places}{needed}"
    yield ""
    if one.fields is not None:
        yield from ("| field | type | |", "|---|---|---|")
        shape = resolve(one.fields.shape, one.fields.shape)
        required = set(shape.get("required", ()))
        for field in one.fields.fields:
            inner = shape.get("properties", {}).get(field.name, {})
            note = "required" if field.name in required else ""
            yield f"| {_cell(_code(field.name))} | {_cell(_plain(type_name(inner, one.fields.shape)))} | {note} |"
        yield ""


def life(ttl: Ttl | None) -> str:
    """How long a key lives, in words."""
    if ttl is None:
        return "for good"
    if ttl.until is not None:
        return f"until midnight ({ttl.zone})"
    assert ttl.seconds is not None
    words = duration(ttl.seconds)
    if ttl.max_seconds is not None and ttl.max_seconds > ttl.seconds:
        words += f", at most {duration(ttl.max_seconds)}"
    if ttl.renew == "create":
        words += " from the first write"
    return words if ttl.required else words + " or for good"


def duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"


def _type(one: Declaration) -> str:
    if one.also:
        return " or ".join((one.type, *one.also))
    return "counter (string)" if one.counter else "lock (string)" if one.protection == "lock" else one.type


def _holder(one: Declaration) -> str:
    return {"string": "value", "hash": "each field", "list": "each element"}.get(one.type, "each member")


def _kind(placeholder: Placeholder) -> str:
    if placeholder.kind == "choice":
        return " or ".join(_code(choice) for choice in placeholder.choices)
    return KINDS[placeholder.kind]


def _shape(shape: dict[str, Any] | None) -> str:
    return f" of {_plain(type_name(shape, shape))}" if shape is not None and set(shape) - {"type"} else ""


def resolve(shape: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The shape that a `$ref` names."""
    name = str(shape["$ref"]).rpartition("/")[2] if "$ref" in shape else ""
    found = root.get("$defs", {}).get(name, shape)
    return found if isinstance(found, dict) else shape


def type_name(shape: dict[str, Any], root: dict[str, Any]) -> str:
    """A few words for a JSON Schema."""
    if "$ref" in shape:
        return str(shape["$ref"]).rpartition("/")[2]
    if "anyOf" in shape:
        return " or ".join(type_name(one, root) for one in shape["anyOf"])
    if "enum" in shape:
        return " or ".join(str(one) for one in shape["enum"])
    match shape.get("type"):
        case "array":
            return f"list of {type_name(shape.get('items') or {}, root)}"
        case "object":
            return str(shape.get("title", "object"))
        case str() as plain:
            return str(shape.get("format", plain))
        case _:
            return "any value"


def _shown(channel: Channel[Any]) -> str:
    return channel.pattern.prefix + channel.pattern.text


def _first_sentence(text: str) -> str:
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join("\\" + c if c in "\\`*_[]<>#" else " " if c in "\n\r" else c for c in text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

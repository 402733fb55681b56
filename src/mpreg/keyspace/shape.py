"""The shape of a value as JSON Schema, and a Python type back from it, so that a schema file needs no Python code.

What is read back is the part of JSON Schema that msgspec writes; anything else in a foreign file is "any value".
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Annotated, Any, Literal, Union

import msgspec

from mpreg.errors import KeyspaceError

DEPTH_MAX = 32
SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
FORMATS: dict[str, Any] = {
    "date-time": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
}
BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "pattern": "pattern",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
}


def shape_of(of: Any) -> dict[str, Any]:
    """JSON Schema of a type; a type that has none (an arbitrary class) can't be declared."""
    try:
        return msgspec.json.schema(of)
    except TypeError as error:
        raise KeyspaceError(
            "KEYSPACE_INVALID_DECLARATION", f"{of!r} has no JSON Schema: {error}", field="codec"
        ) from None


def type_of(shape: dict[str, Any]) -> Any:
    """A type that takes what `shape` describes."""
    return _type(shape, shape.get("$defs", {}), ())


def _type(shape: Any, definitions: dict[str, Any], path: tuple[str, ...]) -> Any:
    if not isinstance(shape, dict) or len(path) > DEPTH_MAX:
        return Any
    if "$ref" in shape:
        name = str(shape["$ref"]).rpartition("/")[2]
        # A type that holds itself is any value from there on.
        return Any if name in path else _type(definitions.get(name), definitions, (*path, name))
    if "anyOf" in shape:
        return _union([_type(option, definitions, path) for option in shape["anyOf"]])
    if "enum" in shape and all(isinstance(value, str | int) for value in shape["enum"]):
        return Literal[tuple(shape["enum"])]
    kind = shape.get("type")
    if isinstance(kind, list):
        return _union([_type({**shape, "type": one}, definitions, path) for one in kind])
    return _bounded(_plain(kind, shape, definitions, path), shape)


def _plain(kind: Any, shape: dict[str, Any], definitions: dict[str, Any], path: tuple[str, ...]) -> Any:
    match kind:
        case "array" if isinstance(shape.get("prefixItems"), list):
            items = [_type(item, definitions, path) for item in shape["prefixItems"]]
            return tuple[tuple(items)] if shape.get("items") is False else list[Any]  # type: ignore[misc]
        case "array":
            item: Any = _type(shape.get("items", {}), definitions, path)
            return list[item]
        case "object" if isinstance(shape.get("properties"), dict):
            return _struct(shape, definitions, path)
        case "object":
            value: Any = _type(shape.get("additionalProperties", {}), definitions, path)
            return dict[str, value]
        case "string" if shape.get("contentEncoding") == "base64":
            return bytes
        case "string":
            return FORMATS.get(shape.get("format", ""), str)
        case str():
            return SCALARS.get(kind, Any)
        case _:
            return Any


def _struct(shape: dict[str, Any], definitions: dict[str, Any], path: tuple[str, ...]) -> Any:
    required = set(shape.get("required", ()))
    fields: list[Any] = []
    names: dict[str, str] = {}
    for index, (name, inner) in enumerate(shape["properties"].items()):
        field = name if name.isidentifier() and not name.startswith("_") else f"field_{index}"
        names[field] = name
        of = _type(inner, definitions, path)
        if name in required:
            fields.append((field, of))
        else:
            fields.append((field, _union([of, msgspec.UnsetType]), msgspec.field(default=msgspec.UNSET)))
    return msgspec.defstruct(
        str(shape.get("title", "Value")).rpartition(".")[2] or "Value",
        fields,
        rename=names,
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=shape.get("additionalProperties") is False,
    )


def _union(options: list[Any]) -> Any:
    if any(option is Any for option in options):
        return Any
    union = Union[tuple(options)]  # type: ignore[valid-type]  # noqa: UP007  # from a list
    try:
        msgspec.json.Decoder(union)
    except TypeError:
        return Any  # two structs without a tag: the decoder could not tell them apart
    return union


def _bounded(of: Any, shape: dict[str, Any]) -> Any:
    bounds = {ours: shape[theirs] for theirs, ours in BOUNDS.items() if theirs in shape}
    if not bounds or of is Any:
        return of
    bounded: Any = Annotated[of, msgspec.Meta(**bounds)]
    try:
        msgspec.json.Decoder(bounded)
    except TypeError:
        return of
    return bounded

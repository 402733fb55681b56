"""The fields of a Redis hash or stream entry as a struct: one field of the struct is one field of the hash.

Text is text, numbers are decimal, booleans `true` and `false`, dates ISO; what is a list or an object is JSON.
A field that is None, or left at UNSET, is absent. Any Redis client can read the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from mpreg.errors import KeyspaceError
from mpreg.keyspace.codec import Codec
from mpreg.keyspace.shape import shape_of, type_of

T = TypeVar("T")

FIELDS_MAX = 1_024


class Field(msgspec.Struct, frozen=True):
    name: str
    attribute: str
    of: Any
    as_json: bool
    nullable: bool
    required: bool
    absent_is_none: bool  # what is missing reads back as None


class Record(Generic[T]):
    """A struct type, seen as the fields of a hash."""

    def __init__(self, of: type[T], shape: dict[str, Any] | None = None) -> None:
        if not (isinstance(of, type) and issubclass(of, msgspec.Struct)):
            raise KeyspaceError(
                "KEYSPACE_INVALID_DECLARATION", f"the fields of a hash are a msgspec.Struct, not {of!r}", field="fields"
            )
        self.of = of
        self.shape = shape if shape is not None else shape_of(of)
        self.fields = tuple(_field(field) for field in msgspec.structs.fields(of))
        self._by_attribute = {field.attribute: field for field in self.fields}

    def encode(self, value: T) -> dict[bytes, bytes]:
        """The fields to write. A value that could not be read back is KEYSPACE_UNENCODABLE."""
        if not isinstance(value, self.of):
            raise KeyspaceError(
                "KEYSPACE_UNENCODABLE", f"{value!r:.100} is no {self.of.__name__}", codec=self.of.__name__
            )
        given = {field.attribute: getattr(value, field.attribute) for field in self.fields}
        for field in self.fields:
            if given[field.attribute] is None and not field.absent_is_none:
                raise KeyspaceError(
                    "KEYSPACE_UNENCODABLE",
                    f"{field.name} can't be None: it would read as its default",
                    field=field.name,
                )
        out = {
            field.name.encode(): _write(field, given[field.attribute])
            for field in self.fields
            if given[field.attribute] is not None and given[field.attribute] is not msgspec.UNSET
        }
        if not out:
            raise KeyspaceError(
                "KEYSPACE_UNENCODABLE", f"{self.of.__name__} has no field set; a hash can't be empty", codec="hash"
            )
        try:
            again = self.decode(out)
        except KeyspaceError as error:
            raise KeyspaceError(
                "KEYSPACE_UNENCODABLE", error.message, field=error.details.get("field"), codec=self.of.__name__
            ) from None
        for field in self.fields:
            if field.name.encode() in out:
                _refuse_change(field, given[field.attribute], getattr(again, field.attribute))
        return out

    def encode_some(self, changes: Mapping[str, Any]) -> tuple[dict[bytes, bytes], list[bytes]]:
        """The fields to write and those to remove (None) for a change of some fields, each checked by its type."""
        written: dict[bytes, bytes] = {}
        removed: list[bytes] = []
        for attribute, value in changes.items():
            field = self.field(attribute)
            if value is None or value is msgspec.UNSET:
                if field.required and not field.nullable:
                    raise KeyspaceError(
                        "KEYSPACE_UNENCODABLE", f"{field.name} of {self.of.__name__} can't be removed", field=field.name
                    )
                removed.append(field.name.encode())
                continue
            data = _write(field, value)
            try:
                _refuse_change(field, value, _read(field, data))
            except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
                raise KeyspaceError("KEYSPACE_UNENCODABLE", f"{field.name}: {error}", field=field.name) from None
            written[field.name.encode()] = data
        return written, removed

    def decode(self, stored: Mapping[bytes, bytes]) -> T:
        """The struct back. Fields that it does not have are ignored, unless it forbids them."""
        values: dict[str, Any] = {}
        for field in self.fields:
            data = stored.get(field.name.encode())
            if data is not None:
                values[field.attribute] = self._read(field, data)
            elif field.nullable and field.required:
                values[field.attribute] = None
            elif field.required:
                raise self._undecodable(field.name, "is missing")
        if getattr(self.of, "__struct_config__").forbid_unknown_fields:  # noqa: B009
            known = {field.name.encode() for field in self.fields}
            for name in stored.keys() - known:
                raise self._undecodable(name.decode("utf-8", "backslashreplace"), "is not declared")
        return self.of(**values)

    def field(self, attribute: str) -> Field:
        found = self._by_attribute.get(attribute)
        if found is None:
            raise KeyspaceError(
                "KEYSPACE_UNENCODABLE",
                f"{self.of.__name__} has no field {attribute!r:.60}; it has {', '.join(self._by_attribute)}",
                field=attribute,
            )
        return found

    def counts(self, attribute: str) -> bool:
        """Whether a field holds a whole number, which the store itself can add to."""
        try:
            return type(self.decode_field(attribute, b"1")) is int
        except KeyspaceError:
            return False

    def decode_field(self, attribute: str, data: bytes) -> Any:
        return self._read(self.field(attribute), data)

    def _read(self, field: Field, data: bytes) -> Any:
        try:
            return _read(field, data)
        except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
            raise self._undecodable(field.name, f"is {data[:60]!r}: {error}") from None

    def _undecodable(self, name: str, why: str) -> KeyspaceError:
        return KeyspaceError(
            "KEYSPACE_UNDECODABLE", f"field {name} of {self.of.__name__} {why}", field=name, codec=self.of.__name__
        )


def record_from_schema(shape: dict[str, Any]) -> Record[Any]:
    of = type_of(shape)
    if not (isinstance(of, type) and issubclass(of, msgspec.Struct)):
        raise KeyspaceError("KEYSPACE_INVALID_SCHEMA", "the fields of a hash are an object with properties")
    return Record(of, shape)


class FreeFields(msgspec.Struct, Generic[T], frozen=True):
    """A hash whose field names are data: any text, every value by one codec."""

    codec: Codec[T]

    def decode(self, stored: Mapping[bytes, bytes]) -> dict[str, T]:
        return {name.decode("utf-8", "backslashreplace"): self.codec.decode(data) for name, data in stored.items()}


def _field(field: msgspec.structs.FieldInfo) -> Field:
    info = msgspec.inspect.type_info(field.type)
    options = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    kept = [option for option in options if not isinstance(option, NOTHING)]
    return Field(
        name=field.encode_name,
        attribute=field.name,
        of=field.type,
        as_json=not all(isinstance(option, PLAIN) for option in kept),
        nullable=any(isinstance(option, msgspec.inspect.NoneType) for option in options),
        required=field.required,
        absent_is_none=field.required or field.default is None,
    )


NOTHING = (msgspec.inspect.NoneType,)
PLAIN = (
    msgspec.inspect.StrType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.BoolType,
    msgspec.inspect.BytesType,
    msgspec.inspect.DateTimeType,
    msgspec.inspect.DateType,
    msgspec.inspect.TimeType,
    msgspec.inspect.TimeDeltaType,
    msgspec.inspect.UUIDType,
    msgspec.inspect.DecimalType,
    msgspec.inspect.EnumType,
    msgspec.inspect.LiteralType,
)


def _write(field: Field, value: Any) -> bytes:
    try:
        if field.as_json:
            return msgspec.json.encode(value)
        plain = msgspec.to_builtins(value, builtin_types=(bytes,))
        match plain:
            case bytes():
                return plain
            case bool():
                return b"true" if plain else b"false"
            case str():
                return plain.encode()
            case int() | float():
                return repr(plain).encode()
    except (TypeError, ValueError, OverflowError) as error:
        raise KeyspaceError("KEYSPACE_UNENCODABLE", f"{field.name}: {error}", field=field.name) from None
    raise KeyspaceError(
        "KEYSPACE_UNENCODABLE", f"{field.name} takes no {type(value).__name__}: {value!r:.60}", field=field.name
    )


def _read(field: Field, data: bytes) -> Any:
    if field.as_json:
        return msgspec.json.decode(data, type=field.of)
    if field.of is bytes:
        return data
    return msgspec.convert(data.decode(), field.of, strict=False)


def _refuse_change(field: Field, given: Any, again: Any) -> None:
    """A number in a field of text would be written, and come back as text."""
    if type(given) is not type(again) and given != again:
        raise KeyspaceError(
            "KEYSPACE_UNENCODABLE", f"{field.name} takes no {type(given).__name__}: {given!r:.60}", field=field.name
        )

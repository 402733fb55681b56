"""Any value of any message, made from the struct that declares it: a new message is tested without a word here."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import assume
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec import inspect as mi

from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.message import Message

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Without lone surrogates, which no encoding has."""
integers = st.integers(-(2**63), 2**64 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | integers | floats | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


def messages(encoding: Encoding) -> st.SearchStrategy[Message]:
    return st.one_of([_struct(mi.type_info(message), encoding, whole=True) for message in codec.MESSAGES])  # type: ignore[arg-type]


def _struct(info: mi.StructType, encoding: Encoding, *, whole: bool = False) -> st.SearchStrategy[Any]:
    """`whole`: a message, whose `version` is that of the protocol."""
    fields = {field.name: _field(field, encoding, whole) for field in info.fields}

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        values = {name: draw(strategy) for name, strategy in fields.items()}
        try:
            return info.cls(**{name: value for name, value in values.items() if value is not _LEFT_OUT})
        except (ValueError, msgspec.ValidationError):
            assume(False)  # a combination of fields that the message itself refuses

    return build()


_LEFT_OUT = object()


def _field(field: mi.Field, encoding: Encoding, whole: bool) -> st.SearchStrategy[Any]:
    if whole and field.name == "version":
        return st.sampled_from([UNSET, "2.0", "2.7", "2"])
    some = _value(field.type, encoding)
    return some if field.required else st.one_of(st.just(_LEFT_OUT), some)


def _value(info: mi.Type, encoding: Encoding) -> st.SearchStrategy[Any]:
    match info:
        case mi.Metadata():
            return _value(info.type, encoding)
        case mi.RawType():
            return plain.map(lambda value: Raw(codec.encode_value(value, encoding)))
        case mi.AnyType():
            return plain
        case mi.NoneType():
            return st.none()
        case mi.BoolType():
            return st.booleans()
        case mi.IntType():
            low = info.ge if info.ge is not None else info.gt + 1 if info.gt is not None else -(2**63)
            high = info.le if info.le is not None else info.lt - 1 if info.lt is not None else 2**63 - 1
            return st.integers(int(low), int(high))
        case mi.FloatType():
            low_f, high_f = info.ge if info.ge is not None else info.gt, info.le if info.le is not None else info.lt
            return st.floats(
                low_f,
                high_f,
                exclude_min=info.ge is None and low_f is not None,
                exclude_max=info.le is None and high_f is not None,
                allow_nan=False,
                allow_infinity=False,
            )
        case mi.StrType():
            if info.pattern is not None:
                return st.from_regex(info.pattern)
            longest = info.max_length if info.max_length is not None else 12
            return st.text(
                st.characters(exclude_categories=["Cs"]),
                min_size=info.min_length or 0,
                max_size=max(min(longest, 12), info.min_length or 0),
            )
        case mi.LiteralType():
            return st.sampled_from(info.values)
        case mi.EnumType():
            return st.sampled_from(list(info.cls))
        case mi.ListType() | mi.SetType() | mi.FrozenSetType() | mi.VarTupleType():
            make = {mi.ListType: list, mi.SetType: set, mi.FrozenSetType: frozenset, mi.VarTupleType: tuple}[type(info)]
            least = info.min_length or 0
            return st.lists(_value(info.item_type, encoding), min_size=least, max_size=least + 3).map(make)
        case mi.TupleType():
            return st.tuples(*(_value(item, encoding) for item in info.item_types))
        case mi.DictType():
            keys = _value(info.key_type, encoding)
            return st.dictionaries(keys, _value(info.value_type, encoding), max_size=3)
        case mi.UnionType():
            return st.one_of([_value(each, encoding) for each in info.types])
        case mi.StructType():
            return _struct(info, encoding)
        case mi.BytesType():
            return st.binary(max_size=20)
    raise AssertionError(f"no strategy for {info}")

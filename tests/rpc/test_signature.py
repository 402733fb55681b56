"""R-R6: arguments are checked against the hints, and the error names the path of what is wrong."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Raw

from mpreg.errors import MpregError
from mpreg.rpc.signature import Signature
from mpreg.wire.encoding import Encoding

BOTH = pytest.mark.parametrize("encoding", list(Encoding))
MODULES = {Encoding.JSON: msgspec.json, Encoding.MSGPACK: msgspec.msgpack}


def raw(value: Any, encoding: Encoding) -> Any:
    return UNSET if value is UNSET else Raw(MODULES[encoding].encode(value))


def bind(
    function: Callable[..., Any], args: Any = UNSET, kwargs: Any = UNSET, encoding: Encoding = Encoding.JSON
) -> Any:
    """What the function gets, as it sees it; or the error's path."""
    signature = Signature(function)
    try:
        positional, named = signature.bind(raw(args, encoding), raw(kwargs, encoding), encoding)
    except MpregError as error:
        if error.code != "RPC_INVALID_ARGUMENT":
            raise
        return str(error.details["path"])
    return function(*positional, **named)


class Point(msgspec.Struct):
    x: int
    y: Annotated[int, Meta(ge=0)] = 0


@dataclass
class Size:
    width: int
    height: int


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict, total=False):
    depth: int


class Color(Enum):
    RED = "red"


def plain(a: int, b: str) -> Any:
    return a, b


def defaults(a: int, b: str = "two", c: Optional[int] = None) -> Any:  # noqa: UP045 - both spellings are used
    return a, b, c


def rest(a: int, *more: int) -> Any:
    return a, more


def keywords(a: int, **more: int) -> Any:
    return a, more


def only(a: int = 1, *, key: str, other: int = 2) -> Any:
    return a, key, other


def all_kinds(p: int, /, a: int, *more: int, key: int, **others: int) -> Any:
    return p, a, more, key, others


def nothing() -> str:
    return "called"


CALLS = [
    # function, args, kwargs, what it returns or the path of the error
    (plain, [1, "x"], UNSET, (1, "x")),
    (plain, [1, "x"], {}, (1, "x")),
    (plain, [1, "x"], None, (1, "x")),
    (plain, [1], {"b": "x"}, (1, "x")),
    (plain, UNSET, {"b": "x", "a": 1}, (1, "x")),
    (plain, [], {"b": "x", "a": 1}, (1, "x")),
    (plain, UNSET, UNSET, "args[0]"),
    (plain, None, UNSET, "args[0]"),
    (plain, [1], UNSET, "args[1]"),
    (plain, [1], {"b": 2}, "kwargs.b"),
    (plain, [1, "x", 3], UNSET, "args[2]"),
    (plain, [1, "x", 3], {"c": 1}, "args[2]"),
    (plain, ["1", "x"], UNSET, "args[0]"),
    (plain, [1, 2], UNSET, "args[1]"),
    (plain, [True, "x"], UNSET, "args[0]"),
    (plain, [1.5, "x"], UNSET, "args[0]"),
    (plain, [None, "x"], UNSET, "args[0]"),
    (plain, [1, "x"], {"a": 1}, "kwargs.a"),
    (plain, [1, "x"], {"z": 1}, "kwargs.z"),
    (plain, {"a": 1}, UNSET, "args"),
    (plain, {}, UNSET, "args"),
    (plain, "ab", UNSET, "args"),
    (plain, 7, UNSET, "args"),
    (plain, [1, "x"], [], "kwargs"),
    (plain, [1, "x"], "a", "kwargs"),
    (defaults, [1], UNSET, (1, "two", None)),
    (defaults, [1, "b"], UNSET, (1, "b", None)),
    (defaults, [1, "b", 3], UNSET, (1, "b", 3)),
    (defaults, [1], {"c": 3}, (1, "two", 3)),
    (defaults, [], UNSET, "args[0]"),
    (defaults, [1, "b", 3, 4], UNSET, "args[3]"),
    (defaults, [1, None], UNSET, "args[1]"),
    (defaults, {"a": 1}, UNSET, "args"),
    (rest, [1], UNSET, (1, ())),
    (rest, [1, 2, 3], UNSET, (1, (2, 3))),
    (rest, [1, 2, "3"], UNSET, "args[2]"),
    (rest, [], UNSET, "args[0]"),
    (rest, UNSET, {"a": 1}, (1, ())),
    (rest, [1], {"more": [2]}, "kwargs.more"),
    (keywords, [1], {"b": 2, "c": 3}, (1, {"b": 2, "c": 3})),
    (keywords, [1], {"more": 2}, (1, {"more": 2})),
    (keywords, [1], {"b": "2"}, "kwargs.b"),
    (keywords, [1], UNSET, (1, {})),
    (only, [], {"key": "k"}, (1, "k", 2)),
    (only, [5], {"key": "k", "other": 6}, (5, "k", 6)),
    (only, [5], UNSET, "kwargs.key"),
    (only, [5, "k"], UNSET, "args[1]"),
    (all_kinds, [1, 2, 3, 4], {"key": 5, "z": 6}, (1, 2, (3, 4), 5, {"z": 6})),
    (all_kinds, [1], {"a": 2, "key": 5, "p": 9}, (1, 2, (), 5, {"p": 9})),
    (all_kinds, [], {"a": 2, "key": 5, "p": 9}, "args[0]"),
    (all_kinds, [1, 2], {"a": 2, "key": 5}, "kwargs.a"),
    (nothing, UNSET, UNSET, "called"),
    (nothing, [], {}, "called"),
    (nothing, [1], UNSET, "args[0]"),
    (nothing, UNSET, {"a": 1}, "kwargs.a"),
    (lambda value: value, [{"any": [1, None]}], UNSET, {"any": [1, None]}),
    (lambda *values: values, [1, "a"], UNSET, (1, "a")),
]


@BOTH
@pytest.mark.parametrize(("function", "args", "kwargs", "expected"), CALLS)
def test_a_call_binds_as_python_would_or_says_where_not(
    function: Any, args: Any, kwargs: Any, expected: Any, encoding: Encoding
) -> None:
    assert bind(function, args, kwargs, encoding) == expected


def point(p: Point) -> Any:
    return p


def points(ps: list[Point]) -> Any:
    return ps


def small(n: Annotated[int, Meta(ge=0, lt=10)]) -> Any:
    return n


def short(text: Annotated[str, Meta(max_length=3, pattern="^[a-z]*$")]) -> Any:
    return text


TYPED = [
    (point, {"x": 1}, Point(1)),
    (point, {"x": 1, "y": 2, "unknown": 3}, Point(1, 2)),
    (point, {}, "args[0].x"),
    (point, {"x": "1"}, "args[0].x"),
    (point, {"x": 1, "y": -1}, "args[0].y"),
    (point, [1], "args[0]"),
    (points, [{"x": 1}, {"x": 2}], [Point(1), Point(2)]),
    (points, [{"x": 1}, {"y": 2}], "args[0][1].x"),
    (small, 9, 9),
    (small, 10, "args[0]"),
    (short, "abc", "abc"),
    (short, "abcd", "args[0]"),
    (short, "A", "args[0]"),
]


@BOTH
@pytest.mark.parametrize(("function", "value", "expected"), TYPED)
def test_structs_and_constraints_are_checked_inside(
    function: Any, value: Any, expected: Any, encoding: Encoding
) -> None:
    assert bind(function, [value], UNSET, encoding) == expected
    name = next(iter(Signature(function).parameters))
    by_name = bind(function, UNSET, {name: value}, encoding)
    assert by_name == (
        expected.replace("args[0]", f"kwargs.{name}") if isinstance(expected, str) and "args" in expected else expected
    )


@BOTH
@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Size, {"width": 1, "height": 2}, Size(1, 2)),
        (Pair, [1, "r"], Pair(1, "r")),
        (Options, {"depth": 3}, {"depth": 3}),
        (Color, "red", Color.RED),
        (Literal["a", "b"], "b", "b"),
        (int | str, "x", "x"),
        (set[int], [1, 2, 1], {1, 2}),
        (tuple[int, str], [1, "x"], (1, "x")),
        (dict[str, list[int]], {"k": [1]}, {"k": [1]}),
        (float, 1, 1.0),
        (datetime, "2024-01-02T03:04:05Z", datetime.fromisoformat("2024-01-02T03:04:05+00:00")),
        (date, "2024-01-02", date(2024, 1, 2)),
        (Decimal, "1.20", Decimal("1.20")),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID(int=0x12345678123456781234567812345678)),
        (bytes, b"\x00\xff", b"\x00\xff"),
    ],
)
def test_what_the_hint_says_is_what_the_function_gets(hint: Any, value: Any, expected: Any, encoding: Encoding) -> None:
    def function(value: Any) -> Any:
        return value

    function.__annotations__ = {"value": hint}
    got = bind(function, [value], UNSET, encoding)
    assert got == expected
    assert type(got) is type(expected)
    assert bind(function, UNSET, {"value": value}, encoding) == expected


class Unknown:
    """Has no encoding."""


def of_unknown(a: Unknown, b: list[Unknown], c: int) -> Any:
    return a, b, c


def unresolvable(a: NoSuchType, b: int) -> Any:  # type: ignore[name-defined]  # noqa: F821 - that is the point
    return a, b


def test_a_type_that_has_no_encoding_is_not_checked() -> None:
    assert bind(of_unknown, [1, 2, 3]) == (1, 2, 3)
    assert bind(of_unknown, [1, 2, "3"]) == "args[2]"


def test_hints_that_cannot_be_resolved_are_not_checked() -> None:
    assert bind(unresolvable, [1, "x"]) == (1, "x")


class Service:
    def method(self, a: int) -> Any:
        return a

    def __call__(self, a: int) -> Any:
        return a


@pytest.mark.parametrize("function", [Service().method, Service(), functools.partial(plain, b="x"), max])
def test_any_callable_has_a_signature(function: Any) -> None:
    assert Signature(function)
    if function is max:
        assert bind(function, [1, 3, 2]) == 3
    else:
        assert bind(function, [1]) in (1, (1, "x"))
        assert bind(function, ["1"]) == "args[0]"


def test_a_mutable_default_is_the_functions_own() -> None:
    seen: list[Any] = []

    def append(value: int, to: list[int] = seen) -> list[int]:
        to.append(value)
        return to

    assert bind(append, [1]) is seen
    assert bind(append, [2]) == [1, 2]


@given(
    st.lists(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**62), 2**62)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=4,
    ),
    st.sampled_from([plain, defaults, nothing, point, points, small, short, of_unknown]),
    st.sampled_from(list(Encoding)),
)
def test_both_ways_of_binding_agree(args: list[Any], function: Any, encoding: Encoding) -> None:
    """Straight from the bytes, and from plain data as a request of several commands has it."""
    signature = Signature(function)
    outcomes = []
    for way in (
        lambda: signature.bind(raw(args, encoding), UNSET, encoding),
        lambda: signature.bind_values(MODULES[encoding].decode(raw(args, encoding)), {}, encoding),
    ):
        try:
            positional, named = way()
            outcomes.append(repr(function(*positional, **named)))
        except MpregError as error:
            outcomes.append(error.code)  # of several wrong ones, either may be named
    assert outcomes[0] == outcomes[1] != "PROTOCOL_INVALID_FRAME"


@given(st.binary(max_size=20), st.binary(max_size=20), st.sampled_from(list(Encoding)))
def test_bytes_that_are_no_arguments_are_an_error_of_the_tree(args: bytes, kwargs: bytes, encoding: Encoding) -> None:
    signature = Signature(defaults)
    try:
        signature.bind(Raw(args), Raw(kwargs), encoding)
    except MpregError as error:
        assert error.code in ("RPC_INVALID_ARGUMENT", "PROTOCOL_INVALID_FRAME")  # noqa: PT017


def test_the_schema_describes_arguments_and_result() -> None:
    def work(p: Point, /, n: int = 1, *more: str, key: float, **others: bool) -> list[Point]:
        return [p]

    schema = Signature(work).schema()
    assert schema["arguments"]["required"] == ["p", "key"]
    assert schema["arguments"]["properties"] == {
        "p": {"$ref": "#/$defs/Point"},
        "n": {"type": "integer", "default": 1},
        "*more": {"type": "array", "items": {"type": "string"}},
        "key": {"type": "number"},
        "**others": {"type": "object", "additionalProperties": {"type": "boolean"}},
    }
    assert schema["result"] == {"type": "array", "items": {"$ref": "#/$defs/Point"}}
    assert schema["$defs"]["Point"]["required"] == ["x"]
    json.dumps(schema)


def test_the_schema_tells_the_defaults_of_optional_arguments() -> None:
    schema = Signature(defaults).schema()
    assert schema["arguments"]["required"] == ["a"]
    assert schema["arguments"]["properties"]["b"] == {"type": "string", "default": "two"}
    assert schema["arguments"]["properties"]["c"]["default"] is None
    assert schema["result"] == {}


def test_a_default_that_has_no_encoding_is_left_out_of_the_schema() -> None:
    def work(a: Any = object()) -> None: ...  # noqa: B008

    assert Signature(work).schema()["arguments"]["properties"] == {"a": {}}

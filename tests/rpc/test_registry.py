from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from mpreg.errors import MpregError
from mpreg.rpc import Registry
from mpreg.wire.encoding import Encoding


async def greet(name: str) -> str:
    """Says hello.

    To whom it is told.
    """
    return name


def test_a_function_is_found_by_name_and_by_any_of_its_resources() -> None:
    registry = Registry()
    plain = registry.add(greet)
    gpu = registry.add(greet, locs=["gpu", "eu"])
    assert registry.find("greet", ()) is plain
    assert registry.find("greet", ["gpu"]) is gpu
    assert registry.find("greet", ["eu", "gpu"]) is gpu
    with pytest.raises(MpregError, match="RPC_RESOURCE_NOT_FOUND"):
        registry.find("greet", ["gpu", "us"])
    with pytest.raises(MpregError, match="RPC_FUNCTION_NOT_FOUND"):
        registry.find("Greet", ())
    assert list(registry) == [plain, gpu]
    assert len(registry) == 2


def test_a_description_has_what_a_caller_needs() -> None:
    described = Registry().add(greet, "say.hello", ["eu", "de"], idempotent=True).describe()
    assert described["name"] == "say.hello"
    assert described["doc"] == "Says hello.\n\nTo whom it is told."
    assert described["resources"] == ["de", "eu"]
    assert described["idempotent"] is True
    assert described["arguments"]["properties"] == {"name": {"type": "string"}}
    assert described["result"] == {"type": "string"}


async def age(of: Person) -> int:
    return of.age


NAMED_BEFORE_IT_IS_THERE = Registry().add(age)


class Person(msgspec.Struct):
    age: int


def test_hints_may_name_what_the_program_declares_further_down() -> None:
    args, _ = NAMED_BEFORE_IT_IS_THERE.signature.bind(msgspec.Raw(b'[{"age":7}]'), msgspec.UNSET, Encoding.JSON)
    assert args == (Person(7),)
    assert "Person" in NAMED_BEFORE_IT_IS_THERE.describe()["$defs"]


class Callable_:
    async def __call__(self) -> int:
        return 1


async def method_of_partial(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize(
    ("call", "is_async"),
    [
        (greet, True),
        (len, False),
        (Callable_(), True),
        (functools.partial(method_of_partial, 1), True),
        (lambda: 1, False),
        (dict, False),
    ],
)
def test_async_functions_are_told_from_sync_ones(call: Any, is_async: bool) -> None:
    assert Registry().add(call, "f").is_async is is_async


def numbers() -> Iterator[int]:
    yield 1


async def async_numbers() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("call", "name", "locs", "says"),
    [
        (lambda: 1, None, (), "needs a name"),
        (functools.partial(greet), None, (), "needs a name"),
        (greet, "two words", (), "white space"),
        (greet, "line\n", (), "white space"),
        (greet, "bell\x07", (), "white space"),
        (greet, "x" * 257, (), "256 bytes"),
        (greet, "ü" * 129, (), "256 bytes"),
        (greet, None, "gpu", "not one string"),
        (greet, None, [""], "not empty"),
        (greet, None, [7], "not empty"),
        (numbers, None, (), "generator"),
        (async_numbers, None, (), "generator"),
        (7, "seven", (), "not callable"),
    ],
)
def test_what_cannot_be_offered_is_refused_and_leaves_nothing(call: Any, name: Any, locs: Any, says: str) -> None:
    registry = Registry()
    with pytest.raises(ValueError, match=says):
        registry.add(call, name, locs)
    assert len(registry) == 0


def test_a_name_can_be_taken_once_for_the_same_resources() -> None:
    registry = Registry()
    registry.add(greet, locs=["a", "b"])
    with pytest.raises(ValueError, match="already registered"):
        registry.add(greet, locs=["b", "a"])
    registry.add(greet, locs=["a"])
    assert len(registry) == 2

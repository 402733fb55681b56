"""Commands become names, references and literals (R-R2), whatever the arguments look like."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpreg.client import connect
from mpreg.client.commands import CommandBuilder, assemble, command, single
from mpreg.errors import RpcError
from mpreg.node import Node, Settings

SETTINGS = Settings(ws="off", tcp="off", store="off")


def sent(*wanted: CommandBuilder[Any]) -> list[tuple[str, str, Any, Any]]:
    _, commands = assemble(wanted)
    return [(each.name, each.fun, each.args, each.kwargs) for each in commands]


def run(*wanted: CommandBuilder[Any]) -> list[Any]:
    """What a node makes of it, if every function returns its arguments as {"args": …, **kwargs}."""
    return asyncio.run(_run(wanted))


async def _run(wanted: Sequence[CommandBuilder[Any]]) -> list[Any]:
    node = Node("commands", SETTINGS)

    async def same(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"args": args, **kwargs}

    for name in {each.fun for each in assemble(wanted)[0]}:
        node.function(name=name)(same)
    async with node, connect(node) as client:
        return await client.request(wanted)


def test_a_command_as_an_argument_is_a_reference_to_its_result() -> None:
    first = command("add", 1, 2)
    assert sent(command("double", first)) == [
        ("c0", "double", [{"$ref": "c1"}], msgspec.UNSET),
        ("c1", "add", [1, 2], msgspec.UNSET),
    ]


def test_a_part_of_a_result_is_a_path() -> None:
    first = command("find", name="first")
    assert sent(command("use", first["rows"][0]["id"]))[0][2] == [{"$ref": "first.rows.0.id"}]


def test_references_are_found_anywhere_inside_the_arguments() -> None:
    first = command("one", name="one")
    [result] = run(command("use", [{"deep": (first,)}], key={"a": first["args"]}))
    assert result == {"args": [[{"deep": [{"args": []}]}]], "key": {"a": []}}


def test_a_command_that_two_others_need_is_sent_once() -> None:
    first = command("one")
    assert [fun for _, fun, _, _ in sent(command("a", first), command("b", first))] == ["a", "one", "b"]


@pytest.mark.parametrize(
    "text", ["c1", "c1.args", "c0", "named", "named.x", "$ref", {"$ref": "c1"}, {"$literal": 1}, {"$literal": "c1"}]
)
def test_what_only_looks_like_a_reference_arrives_as_it_is(text: Any) -> None:
    named = command("one", name="named")
    [result, _] = run(command("use", text, named, key=text), named)
    assert result["args"][0] == text
    assert result["key"] == text


def test_what_only_looks_like_a_reference_in_structs_dataclasses_and_enums_arrives_too() -> None:
    class Struct(msgspec.Struct):
        field: str

    @dataclass
    class Data:
        field: str

    class Color(enum.StrEnum):
        RED = "c1"

    [result] = run(command("use", Struct("c1"), Data("c1"), Color.RED, command("one")))
    assert result["args"][:3] == [{"field": "c1"}, {"field": "c1"}, "c1"]


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["c0", "c1", "c2.x", "$ref", "$literal", "text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["$ref", "$literal", "k"]), inner),
    max_leaves=8,
)


@settings(deadline=None)
@given(plain)
def test_every_argument_arrives_as_it_was_given(value: Any) -> None:
    [result] = run(command("use", value, command("one")))
    assert result["args"][0] == value


def test_arguments_of_a_single_command_are_sent_as_they_are() -> None:
    assert single("echo", ("call", {"$ref": "call"}), {}, ()).args == ("call", {"$ref": "call"})
    assert sent(command("echo", "c0")) == [("c0", "echo", ("c0",), msgspec.UNSET)]


def test_a_name_that_is_taken_is_not_made_up_again() -> None:
    chosen = command("a", name="c1")
    assert [name for name, *_ in sent(command("b"), chosen)] == ["c0", "c1"]
    assert [name for name, *_ in sent(chosen, command("b"))] == ["c1", "c1_"]


def test_two_commands_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        assemble([command("a", name="x"), command("b", name="x")])


def test_a_request_has_at_most_1000_commands() -> None:
    assert len(assemble([command("a") for _ in range(1000)])[1]) == 1000
    with pytest.raises(ValueError, match="at most 1000"):
        assemble([command("a") for _ in range(1001)])


@pytest.mark.parametrize("key", ["", "a.b", -1])
def test_a_step_that_a_path_can_not_express_is_refused(key: str | int) -> None:
    with pytest.raises(ValueError, match="step"):
        command("a")[key]


def test_a_result_can_not_be_iterated() -> None:
    with pytest.raises(TypeError, match="not known yet"):
        list(command("a"))  # type: ignore[call-overload]


def test_resources_are_a_list() -> None:
    with pytest.raises(ValueError, match="list of resources"):
        command("a", locs="gpu")
    with pytest.raises(ValueError, match="list of resources"):
        single("a", (), {}, "gpu")


def test_an_argument_without_an_encoding_is_refused() -> None:
    with pytest.raises(RpcError, match="can't be encoded"):
        assemble([command("a", object(), command("b"))])

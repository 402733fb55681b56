"""`mpreg functions`: what a node offers, as a tree for people and as JSON for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.conftest import Mpreg

from mpreg.cli.functions import signature, type_of


def test_the_tree_has_types_docs_and_resources(at: Mpreg) -> None:
    said = at("functions")
    assert (said.code, said.err) == (0, "")
    lines = [line.lstrip("│├└─ ") for line in said.out.splitlines()]
    assert "add(a: integer, b: integer) -> integer" in lines
    assert "distance(a: Point, b: Point) -> integer" in lines
    assert "How far a taxi drives." in lines
    assert "render(scene: string) -> string" in lines
    assert "at eu, gpu" in lines
    assert 'join(*parts: [string], by: string = "-") -> string' in lines
    assert "mpreg." in lines


def test_a_prefix_leaves_the_others_out(at: Mpreg) -> None:
    said = at("functions", "mpreg.", "--json")
    names = [function["name"] for function in json.loads(said.out)]
    assert "mpreg.functions" in names
    assert all(name.startswith("mpreg.") for name in names)
    assert json.loads(at("functions", "nothing.begins.like.this", "--json").out) == []


def test_for_programs_it_is_what_the_node_says(at: Mpreg) -> None:
    functions = {each["name"]: each for each in json.loads(at("functions", "--json").out)}
    assert functions["render"]["resources"] == ["eu", "gpu"]
    assert functions["add"]["arguments"]["required"] == ["a", "b"]


def test_without_a_node_it_says_so(mpreg: Mpreg) -> None:
    said = mpreg("functions", "--url", "tcp://127.0.0.1:1")
    assert (said.code, said.out) == (1, "")
    assert "TRANSPORT_CONNECTION_REFUSED" in said.err


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "any"),
        ({"type": "integer"}, "integer"),
        ({"type": "array", "items": {"type": "string"}}, "[string]"),
        ({"type": "array"}, "array"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "{number}"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"enum": ["a", 1]}, "'a' | 1"),
        ({"$ref": "#/$defs/User"}, "User"),
    ],
)
def test_a_schema_in_a_few_words(schema: dict[str, Any], text: str) -> None:
    assert type_of(schema) == text


def test_an_argument_that_may_be_left_out_shows_its_default() -> None:
    properties = {"a": {}, "n": {"type": "integer", "default": 1}, "x": {"type": "string"}}
    function = {"name": "f", "arguments": {"required": ["a"], "properties": properties}, "result": {"type": "null"}}
    assert signature(function) == "f(a, n: integer = 1, x: string = …) -> null"

"""The documents that are made from the structs: whole, consistent, and true of what the codec writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from tests.wire.messages import messages

from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.message import Message
from mpreg.wire.queues import QueueStatistics
from mpreg.wire.schema import asyncapi, family_of, is_from_node, json_schema

SCHEMA = json_schema()
DOCUMENT = asyncapi()


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def resolve(document: dict[str, Any], reference: str) -> Any:
    assert reference.startswith("#/")
    at: Any = document
    for part in reference[2:].split("/"):
        at = at[part]
    return at


@pytest.mark.parametrize("document", [SCHEMA, DOCUMENT])
def test_every_reference_leads_somewhere_and_the_document_is_json(document: dict[str, Any]) -> None:
    assert json.loads(json.dumps(document)) == document
    for reference in references(document):
        assert isinstance(resolve(document, reference), dict)


@pytest.mark.parametrize("message", codec.MESSAGES)
def test_every_message_is_in_both_with_the_field_that_tells_it(message: type[Message]) -> None:
    name = message.__name__
    definition = SCHEMA["$defs"][name]
    config = message.__struct_config__
    assert definition["properties"][config.tag_field]["enum"] == [config.tag]
    assert {"$ref": f"#/$defs/{name}"} in SCHEMA["oneOf"]
    assert DOCUMENT["components"]["messages"][name]["name"] == config.tag
    assert name in DOCUMENT["channels"]["node"]["messages"]
    assert {field.encode_name for field in msgspec.structs.fields(message)} <= set(definition["properties"])


@pytest.mark.parametrize("message", codec.MESSAGES)
def test_every_message_is_taken_or_sent_by_a_node(message: type[Message]) -> None:
    reference = {"$ref": f"#/channels/node/messages/{message.__name__}"}
    receive, send = (DOCUMENT["operations"][operation]["messages"] for operation in ("receive", "send"))
    assert (reference in receive) is (not is_from_node(message) or message is QueueStatistics)
    assert (reference in send) is (is_from_node(message) or family_of(message) == "what")


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """As much of JSON Schema as the structs need."""
    if "$ref" in schema:
        return fits(value, resolve(SCHEMA, schema["$ref"]))
    if "anyOf" in schema or "oneOf" in schema:
        return any(fits(value, each) for each in schema.get("anyOf", schema.get("oneOf", [])))
    if "enum" in schema:
        return value in schema["enum"]
    match schema.get("type"):
        case "object":
            inner = schema.get("properties", {})
            rest = schema.get("additionalProperties", {})
            return (
                isinstance(value, dict)
                and set(schema.get("required", ())) <= set(value)
                and all(
                    fits(each, inner[name]) if name in inner else not isinstance(rest, dict) or fits(each, rest)
                    for name, each in value.items()
                )
            )
        case "array":
            return isinstance(value, list) and all(fits(each, schema.get("items") or {}) for each in value)
        case "string":
            return isinstance(value, str) and len(value) >= schema.get("minLength", 0)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
    return True


@settings(max_examples=200, deadline=None)
@given(messages(Encoding.JSON))
def test_what_the_codec_writes_fits_the_schema_of_its_message_and_no_other(message: Message) -> None:
    written = json.loads(codec.encode(message, Encoding.JSON))
    fitting = [each["$ref"] for each in SCHEMA["oneOf"] if fits(written, each)]
    assert fitting == [f"#/$defs/{type(message).__name__}"]

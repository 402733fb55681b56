"""`mpreg schema`: the messages as documents, made from the structs."""

from __future__ import annotations

import json
import sys

import rich_click as click


@click.command()
@click.argument("kind", type=click.Choice(["json", "asyncapi"]), default="json")
@click.option("--json", "as_json", is_flag=True, help="On one line.")
def schema(kind: str, as_json: bool) -> None:
    """Print the JSON Schema of all messages, or an AsyncAPI 3 document of a node."""
    from mpreg.wire.schema import asyncapi, json_schema

    document = asyncapi() if kind == "asyncapi" else json_schema()
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=None if as_json else 2) + "\n")

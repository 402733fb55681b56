"""`mpreg functions`: what can be called, with types and documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

if TYPE_CHECKING:
    from rich.tree import Tree


@click.command()
@click.argument("prefix", required=False, default="")
@node_options
@json_option
def functions(prefix: str, as_json: bool, **where: Any) -> None:
    """Show the functions of a node as a tree; only those whose name begins with PREFIX, if it is given."""
    url, everything = run(_functions(where))
    found = [each for each in everything if each["name"].startswith(prefix)]
    if as_json:
        write_json(found)
        return
    from rich.console import Console

    Console(highlight=False).print(tree(found, url))


async def _functions(where: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    async with connecting(**where) as client:
        return client.url or "", await client.call("mpreg.functions", result_type=list[dict[str, Any]])


def tree(found: list[dict[str, Any]], root: str) -> Tree:
    """Names are split at their dots."""
    from rich.text import Text
    from rich.tree import Tree

    top = Tree(Text(root, style="bold"))
    branches: dict[tuple[str, ...], Tree] = {(): top}
    for function in sorted(found, key=lambda each: str(each["name"])):
        *path, _ = function["name"].split(".")
        for depth in range(1, len(path) + 1):
            at = tuple(path[:depth])
            if at not in branches:
                branches[at] = branches[at[:-1]].add(Text(at[-1] + ".", style="bold"))
        line = Text(signature(function))
        doc = function["doc"].partition("\n")[0]
        if doc:
            line.append(f"\n{doc}", style="dim")
        if function["resources"]:
            line.append(f"\nat {', '.join(function['resources'])}", style="dim")
        branches[tuple(path)].add(line)
    return top


def signature(function: dict[str, Any]) -> str:
    """`greet(name: string, times: integer = …) -> string`"""
    needed = function["arguments"]["required"]
    parts = []
    for name, schema in function["arguments"]["properties"].items():
        kind = type_of(schema)
        optional = name not in needed and not name.startswith("*")
        if optional:
            parts.append(f"{name}: {kind} = {_default(schema)}")
        else:
            parts.append(name if kind == "any" else f"{name}: {kind}")
    return f"{function['name']}({', '.join(parts)}) -> {type_of(function['result'])}"


def type_of(schema: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(type_of(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(repr(value) for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"[{type_of(schema['items'])}]"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"{{{type_of(schema['additionalProperties'])}}}"
    return str(kind)


def _default(schema: dict[str, Any]) -> str:
    import json

    return json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "…"

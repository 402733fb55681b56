"""`mpreg keys find`: everything that belongs to one thing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.keys_options import (
    json_option,
    load_catalog,
    opened,
    print_json,
    printable,
    readable,
    run,
    schema_option,
    store_option,
)
from mpreg.cli.keys_output import as_text, key_fields, match_fields, span
from mpreg.cli.keys_progress import progress_bar

if TYPE_CHECKING:
    from mpreg.keyspace import Catalog
    from mpreg.keyspace.tools.find import Found, FoundKey, Thing

VALUE_CHARS = 200


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--depth", type=click.IntRange(0, 10), default=2, show_default=True, metavar="N",
              help="How many relations to follow.")  # fmt: skip
@click.option("--max", "keys_max", type=click.IntRange(1, 100_000), default=1_000, show_default=True, metavar="N")
@click.option("--absent", is_flag=True, help="Also keys that would belong to it, but are not there.")
@store_option
@schema_option
@json_option
def command(
    query: tuple[str, ...],
    depth: int,
    keys_max: int,
    absent: bool,
    store: str | None,
    schema: tuple[str, ...],
    as_json: bool,
) -> None:
    """Everything that belongs to one thing: its own keys, the sets that hold it, and what those lead to.

    QUERY is a placeholder of the declared keys and its value (`issue 123`, `issue=123`), or a whole key. Exit code 1
    when nothing is found.
    """
    from mpreg.keyspace.tools.find import parse_query

    catalog = load_catalog(schema)
    things = parse_query(catalog, " ".join(query))
    found = run(_find(store, catalog, things, depth, keys_max))
    there = [one for one in found.keys.values() if one.walked is not None]
    listed = list(found.keys.values()) if absent else there
    if as_json:
        print_json({"keys": [_fields(one) for one in listed], "searched": found.searched, "more": found.cut})
    else:
        for one in listed:
            _show(one)
        if found.cut:
            print("… there is more (--max)")
        if not there:
            print("nothing", file=sys.stderr)
    sys.exit(0 if there else 1)


async def _find(url: str | None, catalog: Catalog, things: list[Thing], depth: int, keys_max: int) -> Found:
    from mpreg.keyspace.tools.find import find

    async with opened(url) as store:
        with progress_bar("searching") as done:
            return await find(store, catalog, things, depth=depth, keys_max=keys_max, progress=done)


def _shown(one: FoundKey) -> tuple[Any, str | None]:
    from mpreg.keyspace.tools.contents import shown

    if one.contents is None or one.walked is None:
        return None, None
    return shown(one.walked.match.declaration if one.walked.match is not None else None, one.contents)


def _fields(one: FoundKey) -> dict[str, Any]:
    value, fault = _shown(one)
    return {
        **key_fields(one.key),
        **match_fields(one.walked.match if one.walked is not None else None),
        "exists": one.walked is not None,
        "type": one.walked.type if one.walked is not None else None,
        "ttl_ms": one.walked.ttl_ms if one.walked is not None and one.walked.ttl_ms >= 0 else None,
        "via": one.via,
        "value": value,
        "fault": fault,
    }


def _show(one: FoundKey) -> None:
    if one.walked is None:
        print(f"{readable(one.key)}  (absent)  {printable(one.via)}")
        return
    life = f", expires in {span(one.walked.ttl_ms)}" if one.walked.ttl_ms >= 0 else ""
    print(f"{readable(one.key)}  ({one.walked.type}{life})  {printable(one.via)}")
    value, fault = _shown(one)
    if value is not None:
        text = as_text(value)
        print("    " + (text if len(text) <= VALUE_CHARS else text[:VALUE_CHARS] + "…"))
    if fault is not None:
        print(f"    can't be decoded: {printable(fault)}")

"""`mpreg keys get`: one key, decoded as it is declared."""

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
from mpreg.cli.keys_output import as_text, key_argument, key_fields, match_fields, size, span

if TYPE_CHECKING:
    from mpreg.keyspace import Catalog


@click.command()
@click.argument("key")
@click.option("--base64", "as_base64", is_flag=True, help="KEY is base64, for a key that is no text.")
@click.option("--max", "elements_max", type=click.IntRange(1, 10_000), default=100, show_default=True, metavar="N",
              help="Show at most N elements of a collection.")  # fmt: skip
@store_option
@schema_option
@json_option
def command(
    key: str, as_base64: bool, elements_max: int, store: str | None, schema: tuple[str, ...], as_json: bool
) -> None:
    """One key: what it is, how long it lives, and its value as declared. Exit code 1 when there is no such key."""
    catalog, name = load_catalog(schema), key_argument(key, as_base64)
    found = run(_get(store, catalog, name, elements_max))
    if found is None:
        print(f"mpreg: there is no key {readable(name)}", file=sys.stderr)
        sys.exit(1)
    if as_json:
        print_json(found)
    else:
        _show(name, found)


async def _get(url: str | None, catalog: Catalog, key: bytes, elements_max: int) -> dict[str, Any] | None:
    from mpreg.keyspace.tools.contents import read, shown
    from mpreg.keyspace.tools.walk import look_at

    async with opened(url) as store:
        page = await look_at(store, catalog, [key])
        if not page.found:
            return None
        walked = page.found[0]
        declaration = walked.match.declaration if walked.match is not None else None
        contents = await read(store, key, walked.type, declaration, elements_max=elements_max)
        memory = await store.command(b"MEMORY", b"USAGE", key, b"SAMPLES", 5)
        if contents is None or memory is None:
            return None
        value, fault = shown(declaration, contents)
        return {
            **key_fields(key),
            **match_fields(walked.match),
            "type": walked.type,
            "declared_type": declaration.type if declaration is not None else None,
            "ttl_ms": walked.ttl_ms if walked.ttl_ms >= 0 else None,
            "memory_bytes": int(memory),
            "size": contents.size,
            "complete": contents.complete,
            "value": value,
            "fault": fault,
        }


def _show(key: bytes, found: dict[str, Any]) -> None:
    print(readable(key))
    if found["family"] is None:
        print("  not declared")
    else:
        values = ", ".join(f"{name} = {printable(str(value))}" for name, value in found["values"].items())
        print(f"  {found['family']}" + (f" with {values}" if values else ""))
    unit = "bytes" if found["type"] == "string" else "elements"
    life = f"expires in {span(found['ttl_ms'])}" if found["ttl_ms"] is not None else "never expires"
    print(f"  {found['type']}, {found['size']:,} {unit}, {size(found['memory_bytes'])}, {life}")
    if found["declared_type"] not in (None, found["type"]):
        print(f"  but declared as {found['declared_type']}")
    if found["fault"] is not None:
        print(f"  can't be decoded: {printable(found['fault'])}")
    print(as_text(found["value"], indent=2))
    if not found["complete"]:
        print("  … there is more")

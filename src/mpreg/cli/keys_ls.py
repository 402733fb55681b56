"""`mpreg keys ls`: the families of keys as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.keys_options import (
    json_option,
    load_catalog,
    opened,
    print_json,
    rate_option,
    readable,
    run,
    schema_option,
    store_option,
)
from mpreg.cli.keys_output import columns, key_fields, match_fields, size, span
from mpreg.cli.keys_progress import progress_bar
from mpreg.cli.keys_tree import draw

if TYPE_CHECKING:
    from mpreg.keyspace import Catalog
    from mpreg.keyspace.tools.stats import Census, FamilyStats
    from mpreg.keyspace.tools.walk import Scope, Walked


@click.command()
@click.option("--family", multiple=True, metavar="NAME", help="Only this declared family; several are joined.")
@click.option("--everything", is_flag=True, help="Also keys outside the declared prefixes.")
@click.option("--keys", "list_keys", is_flag=True, help="The keys themselves, not only how many there are.")
@click.option("--max", "keys_max", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True, metavar="N",
              help="With --keys: at most N.")  # fmt: skip
@store_option
@schema_option
@rate_option
@json_option
def command(
    family: tuple[str, ...],
    everything: bool,
    list_keys: bool,
    keys_max: int,
    store: str | None,
    schema: tuple[str, ...],
    rate: float | None,
    as_json: bool,
) -> None:
    """The families of keys as a tree: how many keys, how much memory (from a sample), how long they still live."""
    from mpreg.keyspace.tools.walk import scope_of

    catalog = load_catalog(schema)
    scope = scope_of(catalog, family, everything=everything)
    if list_keys:
        _show_keys(*run(_keys(store, catalog, scope, keys_max, rate)), as_json)
        return
    found = run(_census(store, catalog, scope, rate))
    families = sorted((one for one in found.families.values() if one.keys), key=lambda one: one.pattern)
    if as_json:
        print_json({"scanned": found.scanned, "families": [_fields(one) for one in families]})
        return
    separators = {one.full_name: one.pattern.separator for one in catalog}
    lines = draw([(one.pattern or one.name, separators.get(one.name, ":"), one) for one in families])
    columns(
        ("family", "type", "keys", "memory", "expires in", "no TTL"),
        [(text, *(_cells(one) if one is not None else ("", "", "", "", ""))) for text, one in lines],
        right=frozenset({2, 3, 5}),
    )
    print(f"{found.scanned:,} keys")


async def _census(url: str | None, catalog: Catalog, scope: Scope, rate: float | None) -> Census:
    from mpreg.keyspace.tools.stats import Census, census, measure
    from mpreg.keyspace.tools.walk import key_count

    found = Census({})
    async with opened(url) as store:
        with progress_bar("counting", await key_count(store)) as done:
            async for found in census(store, catalog, scope, keys_per_s=rate):
                done(found.scanned)
        for one in found.families.values():
            await measure(store, one)
    return found


async def _keys(
    url: str | None, catalog: Catalog, scope: Scope, keys_max: int, rate: float | None
) -> tuple[list[Walked], bool]:
    from mpreg.keyspace.tools.walk import walk

    found: list[Walked] = []
    async with opened(url) as store:
        async for page in walk(store, catalog, scope, keys_per_s=rate):
            found += page.found
            if len(found) > keys_max:
                return found[:keys_max], True
    return found, False


def _show_keys(found: list[Walked], more: bool, as_json: bool) -> None:
    if as_json:
        listed = [
            {
                **key_fields(one.key),
                **match_fields(one.match),
                "type": one.type,
                "ttl_ms": one.ttl_ms if one.ttl_ms >= 0 else None,
            }
            for one in found
        ]
        print_json({"keys": listed, "more": more})
        return
    rows = [(readable(one.key), one.type, span(one.ttl_ms)) for one in sorted(found, key=lambda one: one.key)]
    columns(("key", "type", "expires in"), rows)
    print(f"{len(found):,} keys" + (", and there are more (--max)" if more else ""))


def _cells(one: FamilyStats) -> tuple[str, str, str, str, str]:
    memory = size(one.memory.total_bytes) if one.memory is not None else "–"
    if one.memory is not None and one.memory.error_bytes:
        memory = "≈" + memory
    spread = "–"
    if one.ttl_min_ms is not None:
        low, middle, high = span(one.ttl_min_ms), span(one.ttl_ms(0.5)), span(one.ttl_max_ms)
        spread = low if low == high else f"{low} … {middle} … {high}"
    return one.type, f"{one.keys:,}", memory, spread, f"{one.without_ttl:,}" if one.without_ttl else "–"


def _fields(one: FamilyStats) -> dict[str, Any]:
    return {
        "family": one.name,
        "pattern": one.pattern or None,
        "type": one.type or None,
        "keys": one.keys,
        "memory_bytes": one.memory.total_bytes if one.memory is not None else None,
        "memory_error_bytes": one.memory.error_bytes if one.memory is not None else None,
        "without_ttl": one.without_ttl,
        "ttl_ms": {
            "min": one.ttl_min_ms,
            "p10": one.ttl_ms(0.1),
            "median": one.ttl_ms(0.5),
            "p90": one.ttl_ms(0.9),
            "max": one.ttl_max_ms,
        },
    }

"""`mpreg keys stats`: memory of each family, and how sure that is."""

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
from mpreg.cli.keys_output import columns, key_fields, size
from mpreg.cli.keys_progress import progress_bar

if TYPE_CHECKING:
    from mpreg.keyspace import Catalog
    from mpreg.keyspace.tools.stats import Census, FamilyStats
    from mpreg.keyspace.tools.walk import Scope


@click.command()
@click.option("--family", multiple=True, metavar="NAME", help="Only this declared family; several are joined.")
@click.option("--everything", is_flag=True, help="Also keys outside the declared prefixes.")
@click.option("--sample", type=click.IntRange(2, 1_000_000), default=200, show_default=True, metavar="N",
              help="Ask for the memory of N keys of each family. A larger sample has a smaller error.")  # fmt: skip
@store_option
@schema_option
@rate_option
@json_option
def command(
    family: tuple[str, ...],
    everything: bool,
    sample: int,
    store: str | None,
    schema: tuple[str, ...],
    rate: float | None,
    as_json: bool,
) -> None:
    """Memory of each family: MEMORY USAGE of a random sample, times the number of keys, with the 95 % error."""
    from mpreg.keyspace.tools.walk import scope_of

    catalog = load_catalog(schema)
    found = run(_stats(store, catalog, scope_of(catalog, family, everything=everything), sample, rate))
    families = sorted((one for one in found.families.values() if one.keys), key=_total, reverse=True)
    if as_json:
        print_json({"scanned": found.scanned, "families": [_fields(one) for one in families]})
        return
    columns(
        ("family", "keys", "memory", "± 95 %", "mean", "sampled", "largest in the sample"),
        [_row(one) for one in families],
        right=frozenset({1, 2, 3, 4, 5}),
    )


async def _stats(url: str | None, catalog: Catalog, scope: Scope, sample: int, rate: float | None) -> Census:
    from mpreg.keyspace.tools.stats import Census, census, measure
    from mpreg.keyspace.tools.walk import key_count

    found = Census({})
    async with opened(url) as store:
        with progress_bar("counting", await key_count(store)) as done:
            async for found in census(store, catalog, scope, sample=sample, keys_per_s=rate):
                done(found.scanned)
        with progress_bar("measuring", len(found.families)) as done:
            for number, one in enumerate(found.families.values(), 1):
                await measure(store, one)
                done(number)
    return found


def _total(one: FamilyStats) -> int:
    return one.memory.total_bytes if one.memory is not None else 0


def _row(one: FamilyStats) -> tuple[str, ...]:
    memory = one.memory
    assert memory is not None
    largest = f"{size(memory.largest[0][0])} {readable(memory.largest[0][1])}" if memory.largest else "–"
    error = size(memory.error_bytes) if memory.error_bytes else "exact"
    return (
        *(one.name, f"{one.keys:,}", size(memory.total_bytes), error),
        *(size(memory.mean_bytes), f"{memory.sampled:,}", largest),
    )


def _fields(one: FamilyStats) -> dict[str, Any]:
    memory = one.memory
    assert memory is not None
    return {
        "family": one.name,
        "keys": one.keys,
        "memory_bytes": memory.total_bytes,
        "error_bytes": memory.error_bytes,
        "mean_bytes": round(memory.mean_bytes, 1),
        "sampled": memory.sampled,
        "largest": [{**key_fields(key), "memory_bytes": bytes_} for bytes_, key in memory.largest],
    }

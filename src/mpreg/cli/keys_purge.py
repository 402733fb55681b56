"""`mpreg keys purge`: delete keys, after a look, with a way back."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
from typing import TYPE_CHECKING

import msgspec
import rich_click as click

from mpreg.cli.keys_options import (
    json_option,
    load_catalog,
    opened,
    print_json,
    readable,
    run,
    schema_given,
    schema_option,
    store_option,
)
from mpreg.cli.keys_output import counted, size
from mpreg.cli.keys_progress import progress_bar

if TYPE_CHECKING:
    from mpreg.keyspace.catalog import Catalog
    from mpreg.keyspace.tools.purge import Order, Plan, Purged


@click.command()
@click.argument("pattern", required=False)
@click.option("--family", multiple=True, metavar="NAME", help="Only keys of this declared family; several are joined.")
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only keys that meet it: 'idle >= 1d', 'ttl_remaining = none', 'size_bytes > 1mb', 'type in hash,set', "
    "'age > 2h', 'frequency < 5'. All must be met; what is not known of a key keeps it.",
)
@click.option("--yes", is_flag=True, help="Delete. Without it, only say what would go.")
@click.option("--max", "keys_max", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, metavar="N")
@click.option("--include-protected", multiple=True, metavar="FAMILY", help="Also this family of locks or state.")
@click.option("--root", metavar="TEXT", help="The beginning of all keys that PATTERN may reach, if it is not plain.")
@click.option("--undo", metavar="FILE", help="Where the undo backup goes. Default: ./purge-undo-<time>.jsonl")
@click.option("--no-undo", is_flag=True, help="Delete for good, without an undo backup.")
@store_option
@schema_option
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    metavar="N",
    help="Look at and delete no more than N keys a second. Default: looks freely, deletes 10,000 a second.",
)
@json_option
def command(
    pattern: str | None,
    family: tuple[str, ...],
    where: tuple[str, ...],
    yes: bool,
    keys_max: int,
    include_protected: tuple[str, ...],
    root: str | None,
    undo: str | None,
    no_undo: bool,
    store: str | None,
    schema: tuple[str, ...],
    rate: float | None,
    as_json: bool,
) -> None:
    """Delete the keys that match PATTERN, or those of a declared family.

    Nothing is deleted without --yes, more than --max keys never, and locks and state only when their family is named
    by --include-protected. A key that is written or renewed meanwhile survives.
    """
    from mpreg.keyspace.tools.conditions import CONDITIONS_MAX, parse
    from mpreg.keyspace.tools.purge import Order, check_order
    from mpreg.keyspace.tools.selection import select

    if pattern is None and not family:
        raise click.UsageError("what? Give a PATTERN or --family NAME")
    if undo is not None and no_undo:
        raise click.UsageError("--undo and --no-undo contradict each other")
    conditions = tuple(condition for text in where for condition in parse(text))
    if len(conditions) > CONDITIONS_MAX:
        raise click.UsageError(f"{len(conditions)} conditions are too many; at most {CONDITIONS_MAX} are allowed")
    catalog = load_catalog(schema)
    selection = select(catalog, os.fsencode(pattern) if pattern is not None else None, family)
    order = Order(
        selection=selection,
        roots=_roots(catalog) if schema_given(schema) else (),
        root=os.fsencode(root) if root is not None else None,
        conditions=conditions,
        include_protected=frozenset(one.full_name for one in catalog.select(include_protected))
        if include_protected
        else frozenset(),
        keys_max=keys_max,
        keys_per_s=rate,
    )
    check_order(order)
    run(_purge(order, yes, None if no_undo else undo or _undo_name(), store, as_json))


async def _purge(order: Order, yes: bool, undo: str | None, url: str | None, as_json: bool) -> None:
    from mpreg.keyspace.tools.purge import plan, purge, refuse_too_many

    async with opened(url) as store:
        with progress_bar("look") as progress:
            planned, keys = await plan(store, order, progress)
        purged: Purged | None = None
        if yes and keys:
            refuse_too_many(planned, order)
            with progress_bar("purge", len(keys)) as progress:
                purged = await purge(store, order, keys, undo=undo, on_undo=_say_undo, progress=progress)
    kept = undo if purged is not None else None
    if as_json:
        print_json(
            {
                "dry_run": not yes,
                "plan": msgspec.to_builtins(planned),
                "purged": msgspec.to_builtins(purged) if purged is not None else None,
                "undo": kept,
            }
        )
        return
    _say_plan(planned, order)
    if purged is not None:
        print(f"deleted {purged.deleted}; {purged.changed} changed meanwhile and live on, {purged.gone} had gone")
    elif not yes and planned.chosen:
        too_many = planned.chosen > order.keys_max
        print(
            f"nothing was deleted: more than --max {order.keys_max}" if too_many else "nothing was deleted: add --yes"
        )


def _say_undo(undo: str) -> None:
    """At once, for whoever stops the purge in the middle."""
    print(f"to undo: mpreg keys restore {shlex.quote(undo)} --on-existing skip", file=sys.stderr, flush=True)


def _say_plan(planned: Plan, order: Order) -> None:
    shown = readable(order.selection.match)
    print(f"{shown}: {planned.chosen} of {planned.matched} keys to delete, about {size(planned.size_bytes)}")
    rows = [(count, family) for family, count in sorted(planned.families.items())]
    rows += [
        (count, f"kept: {family} is protected (--include-protected {family})")
        for family, count in sorted(planned.protected.items())
    ]
    rows += [(planned.unmet, "kept: a condition is not met")] if planned.unmet else []
    rows += [(planned.unknown, "kept: what a condition asks is not known of them")] if planned.unknown else []
    counted(rows)
    if planned.examples:
        print(f"for example {', '.join(readable(example.encode()) for example in planned.examples)}")


def _roots(catalog: Catalog) -> tuple[bytes, ...]:
    """What declared keys begin with: the prefix of their keyspace, or else their own literal beginning."""
    return tuple(sorted({one.pattern.prefix.encode() or one.pattern.head for one in catalog}))


def _undo_name() -> str:
    now = datetime.datetime.now(datetime.UTC)
    return f"purge-undo-{now:%Y%m%dT%H%M%SZ}-{os.getpid()}.jsonl"

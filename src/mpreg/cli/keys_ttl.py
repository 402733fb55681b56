"""`mpreg keys ttl`: TTLs that are there against those that are declared."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec
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
from mpreg.cli.keys_output import counted, span
from mpreg.cli.keys_progress import progress_bar

if TYPE_CHECKING:
    from mpreg.keyspace.tools.ttl import Audit, FamilyTtl


@click.command()
@click.argument("pattern", required=False)
@click.option("--family", multiple=True, metavar="NAME", help="Only keys of this declared family; several are joined.")
@click.option("--fix", is_flag=True, help="Give the declared TTL, counted from now, to keys that lack one.")
@click.option("--include-protected", multiple=True, metavar="FAMILY", help="Fix this family of locks or state too.")
@store_option
@schema_option
@rate_option
@json_option
def command(
    pattern: str | None,
    family: tuple[str, ...],
    fix: bool,
    include_protected: tuple[str, ...],
    store: str | None,
    schema: tuple[str, ...],
    rate: float | None,
    as_json: bool,
) -> None:
    """Keys that should expire and never will, or live longer than declared. Exit code 1 if any are left.

    Without --fix nothing is changed. A TTL that is there is never touched, nor a key that holds another type.
    """
    run(_ttl(pattern, family, fix, include_protected, store, schema, rate, as_json))


async def _ttl(
    pattern: str | None,
    family: tuple[str, ...],
    fix: bool,
    include_protected: tuple[str, ...],
    url: str | None,
    schema: tuple[str, ...],
    rate: float | None,
    as_json: bool,
) -> None:
    from mpreg.keyspace import common_glob
    from mpreg.keyspace.tools.selection import select
    from mpreg.keyspace.tools.ttl import audit

    catalog = load_catalog(schema)
    allowed = (
        frozenset(one.full_name for one in catalog.select(include_protected)) if include_protected else frozenset()
    )
    if pattern is not None:
        match: bytes | None = os.fsencode(pattern)
    else:
        match = None if family else common_glob(catalog)
    selection = select(catalog, match, family)
    async with opened(url) as store:
        with progress_bar("ttl") as progress:
            found = await audit(
                store, selection, fix=fix, include_protected=allowed, keys_per_s=rate, progress=progress
            )
    if as_json:
        print_json({"fix": fix, "faults": found.faults, **msgspec.to_builtins(found)})
    else:
        _say(found, fix)
    if found.faults:
        sys.exit(1)


def _say(found: Audit, fix: bool) -> None:
    for name, family in found.families.items():
        print(f"{name}: {_declared(family)}")
        rows = [
            (family.keys - family.missing - family.too_long - family.undeclared - family.other_type, "are as declared"),
            (family.missing - family.fixed, "never expire, and should"),
            (family.fixed, "never expired, and do now"),
            (family.too_long, "live longer than declared"),
            (family.undeclared, "expire, although no TTL is declared"),
            (family.other_type, "are not of the declared type, and were not judged"),
        ]
        counted((count, what) for count, what in rows if count)
        if family.examples:
            print(f"  for example {', '.join(readable(example.encode()) for example in family.examples)}")
        if fix and family.protected and family.missing > family.fixed:
            print(f"  protected: --include-protected {name} fixes it too")
    if found.undeclared_keys:
        print("keys that nobody declared, and that were not judged:", found.undeclared_keys)
    if found.faults and not fix:
        print("nothing was changed: --fix gives the declared TTL to keys that never expire")


def _declared(family: FamilyTtl) -> str:
    if family.until is not None:
        return f"to expire at {family.until}"
    if family.declared_s is None:
        return "no TTL"
    return f"TTL {span(family.declared_s * 1000)}{'' if family.required else ', or none'}"

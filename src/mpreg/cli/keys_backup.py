"""`mpreg keys backup`: keys with type, expiry and value into one verified file."""

from __future__ import annotations

import os
import sys

import msgspec
import rich_click as click

from mpreg.cli.keys_options import (
    json_option,
    load_catalog,
    opened,
    print_json,
    rate_option,
    run,
    schema_option,
    store_option,
)
from mpreg.cli.keys_progress import progress_bar


@click.command()
@click.argument("file")
@click.option("--pattern", metavar="GLOB", help="Only keys that match, as in `sessions:*`. Default: all keys.")
@click.option("--family", multiple=True, metavar="NAME", help="Only keys of this declared family; several are joined.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@store_option
@schema_option
@rate_option
@json_option
def command(
    file: str,
    pattern: str | None,
    family: tuple[str, ...],
    overwrite: bool,
    store: str | None,
    schema: tuple[str, ...],
    rate: float | None,
    as_json: bool,
) -> None:
    """Write keys to FILE (`-` is stdout; compressed if it ends in .gz).

    Each key is as it was when it was read; this is no snapshot of a moment. FILE appears when it is complete. Its
    format is JSON Lines with a checksum in every line; `mpreg keys restore` reads it.
    """
    run(_backup(file, pattern, family, overwrite, store, schema, rate, as_json))


async def _backup(
    file: str,
    pattern: str | None,
    family: tuple[str, ...],
    overwrite: bool,
    url: str | None,
    schema: tuple[str, ...],
    rate: float | None,
    as_json: bool,
) -> None:
    from mpreg.keyspace.tools.backup import backup
    from mpreg.keyspace.tools.backup_file import STDIO, written
    from mpreg.keyspace.tools.selection import select
    from mpreg.keyspace.tools.walk import key_count

    selection = select(load_catalog(schema), os.fsencode(pattern) if pattern is not None else None, family)
    async with opened(url) as store:
        total = await key_count(store) if not (pattern or family) else None
        with written(file, replace=overwrite) as sink, progress_bar("backup", total) as progress:
            done = await backup(
                store,
                sink,
                selection.match,
                accepts=selection.accepts,
                families=selection.families,
                keys_per_s=rate,
                progress=progress,
            )
    if file == STDIO:
        print(f"{done.keys} keys, {done.gone} vanished meanwhile", file=sys.stderr)
    elif as_json:
        print_json({"file": file, **msgspec.to_builtins(done)})
    else:
        print(f"{file}: {done.keys} keys, {done.payload_bytes} bytes of values, {done.gone} vanished meanwhile")

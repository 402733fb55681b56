"""`mpreg keys restore`: the keys of a backup, made again."""

from __future__ import annotations

from typing import Literal

import msgspec
import rich_click as click

from mpreg.cli.keys_options import json_option, opened, print_json, rate_option, run, store_option
from mpreg.cli.keys_progress import progress_bar


@click.command()
@click.argument("file")
@click.option(
    "--on-existing",
    type=click.Choice(["fail", "skip", "replace"]),
    default="fail",
    show_default=True,
    help="What to do with keys that exist: write nothing at all, leave these alone, or overwrite them.",
)
@click.option("--resume", is_flag=True, help="Go on where a restore of this file was interrupted.")
@click.option("--check", is_flag=True, help="Only verify the file, and that this server can read it; write nothing.")
@store_option
@rate_option
@json_option
def command(
    file: str,
    on_existing: Literal["fail", "skip", "replace"],
    resume: bool,
    check: bool,
    store: str | None,
    rate: float | None,
    as_json: bool,
) -> None:
    """Make the keys of FILE again (`-` is stdin), each with its own expiry; what has expired meanwhile is skipped.

    The whole file is verified before the first write. Until it is done, FILE.restore-state says how far it came.
    """
    run(_restore(file, on_existing, resume, check, store, rate, as_json))


async def _restore(
    file: str,
    on_existing: Literal["fail", "skip", "replace"],
    resume: bool,
    check: bool,
    url: str | None,
    rate: float | None,
    as_json: bool,
) -> None:
    from mpreg.keyspace.tools.backup_file import STDIO
    from mpreg.keyspace.tools.backup_file import opened as opened_file
    from mpreg.keyspace.tools.restore import probe, restore, verify

    if resume and file == STDIO:
        raise click.UsageError("a restore from stdin can't be resumed: put the backup into a file")
    with opened_file(file) as backup:
        verified = await verify(backup)
        async with opened(url) as store:
            if check:
                await probe(store, backup.name, verified)
                _say_checked(file, verified.footer.keys, verified.header.server, as_json)
                return
            with progress_bar("restore", verified.footer.keys) as progress:
                done = await restore(
                    store,
                    backup,
                    verified,
                    on_existing=on_existing,
                    resume=resume,
                    state_of=file if file != STDIO else None,
                    keys_per_s=rate,
                    progress=progress,
                )
    if as_json:
        print_json({"file": file, **msgspec.to_builtins(done)})
        return
    print(f"{file}: {done.restored} of {done.keys} keys restored")
    for count, what in (
        (done.resumed_at, "were done by the interrupted run"),
        (done.same, "existed already, exactly so"),
        (done.existing, "exist with another value or expiry, and were left alone"),
        (done.expired, "have expired since"),
    ):
        if count:
            print(f"  {count} {what}")


def _say_checked(file: str, keys: int, server: str, as_json: bool) -> None:
    if as_json:
        print_json({"file": file, "keys": keys, "server": server, "verified": True})
    else:
        print(f"{file}: whole, {keys} keys of {server}, and this server can read them")

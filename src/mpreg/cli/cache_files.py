"""`mpreg cache backup` and `restore`: a namespace as a file.

The file begins with a line that says what it is; then come pages, each after its length in four bytes.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import rich_click as click

from mpreg.cli.keys_progress import progress_bar
from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json
from mpreg.errors import CacheError

MAGIC = b"mpreg cache backup 1\n"
PAGE_BYTES_MAX = 100_000_000


@click.command()
@click.argument("namespace")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--pattern", default="*", show_default=True, help="Of identifiers; `*` is any text.")
@node_options
@json_option
def backup(namespace: str, file: Path, pattern: str, as_json: bool, **where: Any) -> None:
    """Write the values and structures of NAMESPACE to FILE, which must not exist."""
    if file.exists():
        raise click.BadParameter(f"{file} exists", param_hint="FILE")
    part = file.with_name(file.name + ".part")

    async def work() -> int:
        pages = 0
        async with connecting(**where) as client:
            with part.open("wb") as out, progress_bar("pages") as progress:
                out.write(MAGIC)
                async for page in client.cache(namespace).backup(pattern):
                    out.write(struct.pack(">I", len(page)) + page)
                    pages += 1
                    progress(pages)
                out.flush()
                os.fsync(out.fileno())
        return pages

    try:
        pages = run(work())
        part.rename(file)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    if as_json:
        write_json({"pages": pages, "bytes": file.stat().st_size})
    else:
        print(f"{file}: {pages} pages, {file.stat().st_size} bytes", file=sys.stderr)


@click.command()
@click.argument("namespace")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--merge",
    type=click.Choice(["skip", "replace", "newer"]),
    default="skip",
    show_default=True,
    help="What to do with a key that is there.",
)
@node_options
@json_option
def restore(
    namespace: str, file: Path, merge: Literal["skip", "replace", "newer"], as_json: bool, **where: Any
) -> None:
    """Write what FILE holds into NAMESPACE, which may be another one than it came from."""

    async def work() -> tuple[int, int]:
        restored = skipped = 0
        async with connecting(**where) as client:
            with file.open("rb") as data, progress_bar("keys") as progress:
                for page in pages_of(data, file):
                    more, left = await client.cache(namespace).restore(page, merge=merge)
                    restored, skipped = restored + more, skipped + left
                    progress(restored + skipped)
        return restored, skipped

    restored, skipped = run(work())
    if as_json:
        write_json({"restored": restored, "skipped": skipped})
    else:
        print(f"{restored} restored, {skipped} skipped")


def pages_of(data: BinaryIO, file: Path) -> Iterator[bytes]:
    if data.read(len(MAGIC)) != MAGIC:
        raise CacheError("CACHE_INVALID", f"{file} is no backup of a cache", path=str(file))
    while head := data.read(4):
        length = struct.unpack(">I", head)[0] if len(head) == 4 else PAGE_BYTES_MAX + 1
        page = data.read(length) if length <= PAGE_BYTES_MAX else b""
        if len(page) != length:
            raise CacheError(
                "CACHE_INVALID",
                f"{file} is cut off; what came before was restored",
                path=str(file),
                state_changed=True,
            )
        yield page

"""How `mpreg keys` shows things: columns that line up, sizes and times in words, keys whatever their bytes are."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.keys_options import printable, readable

if TYPE_CHECKING:
    from mpreg.keyspace import Match


def columns(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[int] = frozenset()) -> None:
    """Prints a table; the columns in `right` are numbers."""
    from rich.cells import cell_len

    table = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(cell_len(row[n]) for row in table) for n in range(len(header))]
    for row in table:
        cells = []
        for n, cell in enumerate(row):
            pad = " " * (widths[n] - cell_len(cell))
            cells.append(pad + cell if n in right else cell + pad)
        print("  ".join(cells).rstrip())


def counted(rows: Iterable[tuple[int, str]]) -> None:
    """Lines of a number and what it counts, the numbers one below the other."""
    listed = list(rows)
    width = max((len(str(count)) for count, _ in listed), default=0)
    for count, what in listed:
        print(f"  {count:>{width}}  {what}")


def size(count: float) -> str:
    """Bytes in words."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def span(milliseconds: float | None) -> str:
    """A time to live in words."""
    if milliseconds is None or milliseconds < 0:
        return "–"
    seconds = milliseconds / 1000
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length * 2:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def key_fields(key: bytes) -> dict[str, str]:
    """A key in JSON: as text, and exactly if it is no text."""
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key": readable(key), "key_base64": base64.b64encode(key).decode()}


def as_text(value: Any, *, indent: int | None = None) -> str:
    """A value for people, as JSON that moves no cursor."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return "\n".join(map(printable, text.splitlines())) if indent else printable(text)


def match_fields(match: Match | None) -> dict[str, Any]:
    from mpreg.keyspace.tools.contents import plain_value

    if match is None:
        return {"family": None, "values": {}}
    return {
        "family": match.declaration.full_name,
        "values": {name: plain_value(value) for name, value in match.values.items()},
    }


def key_argument(text: str, as_base64: bool) -> bytes:
    """The key that a person named on the command line, where any bytes can be given as base64."""
    if not as_base64:
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise click.UsageError(f"{text!r:.60} is not base64") from None

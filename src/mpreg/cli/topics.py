"""`mpreg topics`: what is published at a node right now, by the first levels of the topic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.keys_options import printable
from mpreg.cli.keys_output import size
from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

if TYPE_CHECKING:
    from rich.table import Table

ROWS_MAX = 40
"""Of a table that is drawn again and again."""


@click.command()
@click.argument("pattern", required=False, default="#")
@click.option("--depth", type=click.IntRange(1, 64), default=1, show_default=True, help="Levels of a prefix.")
@click.option(
    "--interval", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, help="Seconds that are counted."
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="End after N intervals. Default: until Ctrl-C on a terminal, else 1.",
)
@node_options
@json_option
def topics(pattern: str, depth: int, interval: float, count: int | None, as_json: bool, **where: Any) -> None:
    """Show live rates of the topics that match PATTERN (default: all), by prefix, the busiest first.

    The node counts what is published there while this command looks. With --json: one object an interval.
    """
    if count is None and not (sys.stdout.isatty() and not as_json):
        count = 1
    try:
        run(_topics(where, pattern, depth, interval, count, as_json))
    except KeyboardInterrupt:
        if count is not None:
            raise


async def _topics(
    where: dict[str, Any], pattern: str, depth: int, interval: float, count: int | None, as_json: bool
) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    async with connecting(**where) as client:

        async def look() -> dict[str, Any]:
            return await client.call(
                "mpreg.topics", pattern, interval, depth, timeout=interval + 30, result_type=dict[str, Any]
            )

        if as_json:
            for _ in range(count or 1):
                write_json(await look())
                sys.stdout.flush()
        elif console.is_terminal and count is None:
            with Live(table({"topics": []}), console=console, auto_refresh=False) as live:
                while True:
                    live.update(table(await look(), ROWS_MAX), refresh=True)
        else:
            for _ in range(count or 1):
                console.print(table(await look()))


def table(found: dict[str, Any], rows_max: int | None = None) -> Table:
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False)
    drawn.add_column("topic")
    drawn.add_column("messages/s", justify="right")
    drawn.add_column("bytes/s", justify="right")
    rows = [(Text(printable(each["topic"])), each["messages"], each["bytes"]) for each in found["topics"][:rows_max]]
    if "rest" in found:
        rows.append((Text("(others)", style="dim"), found["rest"]["messages"], found["rest"]["bytes"]))
    for name, messages, size_s in rows:
        drawn.add_row(name, f"{messages:,.1f}", size(size_s))
    everything = [*found["topics"], *([found["rest"]] if "rest" in found else [])]
    total_messages = sum(each["messages"] for each in everything)
    total_bytes = sum(each["bytes"] for each in everything)
    drawn.add_row(Text("total", style="bold"), f"{total_messages:,.1f}", size(total_bytes))
    return drawn

"""`mpreg cluster …`: the nodes of a cluster, what they share, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

if TYPE_CHECKING:
    from mpreg.client import Client

COLORS = {"alive": "green", "suspect": "yellow", "dead": "red", "left": "bright_black"}


@click.group()
def cluster() -> None:
    """Look at the cluster of a node: its nodes, functions, topics and shared state."""


@cluster.command()
@node_options
@json_option
def nodes(as_json: bool, **where: Any) -> None:
    """The nodes, as the one that is asked sees them."""
    found = run(_call(where, "mpreg.nodes"))
    if as_json:
        write_json(found)
        return
    rows = [
        (
            each["name"],
            each.get("state", "alive"),
            "this node" if each.get("self") else "linked" if each.get("linked") else "no link",
            f"{each['load']:.0%}" if "load" in each else "",
            each.get("version", ""),
            " ".join(each.get("advertised_urls", ()) or each.get("listeners", {}).values()),
        )
        for each in found
    ]
    _table(("node", "state", "link", "load", "version", "addresses"), rows)


@cluster.command()
@click.argument("prefix", required=False, default="")
@node_options
@json_option
def functions(prefix: str, as_json: bool, **where: Any) -> None:
    """Who has which function, with which resources; only those whose name begins with PREFIX, if it is given."""
    found = [each for each in run(_call(where, "mpreg.functions")) if each["name"].startswith(prefix)]
    if as_json:
        write_json(found)
        return
    rows = [
        (each["name"], ", ".join(each["resources"]), ", ".join(sorted(each["providers"])))
        for each in sorted(found, key=lambda each: (each["name"], each["resources"]))
    ]
    _table(("function", "resources", "nodes"), rows)


@cluster.command()
@node_options
@json_option
def topics(as_json: bool, **where: Any) -> None:
    """Which patterns are subscribed to, and at which nodes. `<level>.#` may stand for very many of them."""
    found = run(_call(where, "mpreg.cluster.topics"))
    if as_json:
        write_json(found)
        return
    by_pattern: dict[str, list[str]] = {}
    for node, patterns in found.items():
        for pattern in patterns:
            by_pattern.setdefault(pattern, []).append(node)
    _table(("pattern", "nodes"), [(pattern, ", ".join(sorted(at))) for pattern, at in sorted(by_pattern.items())])


@cluster.command()
@click.argument("prefix", required=False, default="")
@node_options
@json_option
def state(prefix: str, as_json: bool, **where: Any) -> None:
    """What the nodes share; only keys that begin with PREFIX, if it is given."""
    found = [each for each in run(_call(where, "mpreg.cluster.state")) if each["key"].startswith(prefix)]
    if as_json:
        write_json(found)
        return
    rows = [(each["key"], str(each["version"]), each["source_node"], str(each["value"])[:200]) for each in found]
    _table(("key", "version", "from", "value"), rows)


@cluster.command()
@click.option("--yes", is_flag=True, help="Don't ask.")
@node_options
@json_option
def leave(yes: bool, as_json: bool, **where: Any) -> None:
    """The node that is asked leaves its cluster. It finishes what runs, and goes on serving its own clients."""
    if not yes:
        click.confirm("The node will get no work of the others, and give them none. Go on?", abort=True)
    left = run(_call(where, "mpreg.cluster.leave"))
    if as_json:
        write_json({"left": left})
    else:
        click.echo(f"{left} has left")


@cluster.command()
@click.option("--count", type=click.IntRange(1), help="End after so many changes.")
@node_options
@json_option
def watch(count: int | None, as_json: bool, **where: Any) -> None:
    """Joins, suspicions, deaths and leaves as the node that is asked hears of them; until Ctrl-C."""
    try:
        run(_watch(count, as_json, where))
    except KeyboardInterrupt:
        return


async def _watch(count: int | None, as_json: bool, where: dict[str, Any]) -> None:
    async with connecting(**where) as client, client.subscribe("mpreg.cluster.node") as changes:
        for each in await _nodes(client):
            if not each.get("self"):
                _show({"node": each["name"], "state": each["state"], "urls": each["advertised_urls"]}, as_json)
        seen = 0
        async for change in changes:
            _show(change.payload, as_json)
            seen += 1
            if seen == count:
                return


async def _nodes(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await client.call("mpreg.nodes")
    return found


def _show(change: dict[str, Any], as_json: bool) -> None:
    if as_json:
        write_json(change)
        return
    import time

    at = time.strftime("%H:%M:%S", time.localtime(change.get("at", time.time())))
    state = click.style(f"{change['state']:<8}", fg=COLORS.get(change["state"]))
    click.echo(f"{at}  {state} {change['node']}  {' '.join(change['urls'])}")


async def _call(where: dict[str, Any], function: str) -> Any:
    async with connecting(**where) as client:
        return await client.call(function)


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*titles, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(cell, style=COLORS.get(cell, "")) for cell in row))
    Console(highlight=False).print(table)

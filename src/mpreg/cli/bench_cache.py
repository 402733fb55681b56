"""`mpreg bench cache`: how fast the cache of a node is, seen from here."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import rich_click as click

from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

KEYS = 1_000


@click.command()
@node_options
@click.option("--secs", type=click.FloatRange(min=0.05, max=600), default=1.0, show_default=True, help="For each case.")
@click.option("--size", type=click.IntRange(0, 10_000_000), default=100, show_default=True, help="Bytes of a value.")
@click.option("--in-flight", type=click.IntRange(1, 8000), default=64, show_default=True, help="At the same time.")
@json_option
def cache(secs: float, size: int, in_flight: int, as_json: bool, **where: Any) -> None:
    """Measure get (from the node's memory, and from the store), put and increment, of a namespace of its own."""
    figures = run(_measure(where, secs, size, in_flight))
    if as_json:
        for figure in figures:
            write_json(figure)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in ("case", "metric", "value", "unit"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for figure in figures:
        table.add_row(figure["case"], figure["metric"], f"{figure['value']:,}", figure["unit"])
    Console().print(table)


async def _measure(where: dict[str, Any], secs: float, size: int, in_flight: int) -> list[dict[str, Any]]:
    figures: list[dict[str, Any]] = []
    async with connecting(**where) as client:
        handle = client.cache(f"mpreg.bench.{secrets.token_hex(4)}")
        value = "x" * size
        try:
            await asyncio.gather(*(handle.put(str(n), value, ttl=3600) for n in range(KEYS)))
            cases: dict[str, Callable[[int], Awaitable[Any]]] = {
                "get, node's memory": lambda n: handle.get(str(n % KEYS)),
                "get, store": lambda n: handle.get(str(n % KEYS), consistency="strong"),
                "put": lambda n: handle.put(str(n % KEYS), value, ttl=3600),
                "incr": lambda n: handle.incr("counter"),
            }
            for case, call in cases.items():
                for flights in (1, in_flight):
                    rate = await _rate(call, flights, secs)
                    name = f"{case}, {flights} in flight"
                    figures.append(
                        {"case": name, "peer": "mpreg", "metric": "rate", "value": round(rate), "unit": "1/s"}
                    )
        finally:
            await handle.clear()
    return figures


async def _rate(call: Callable[[int], Awaitable[Any]], flights: int, secs: float) -> float:
    begin = time.perf_counter()
    end = begin + secs
    done = 0

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await call(done)
            done += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(flights):
            group.create_task(caller())
    return done / (time.perf_counter() - begin)

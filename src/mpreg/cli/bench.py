"""`mpreg bench …`: how fast a node is, seen from here. This file: `rpc`, how fast it answers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.bench_cache import cache
from mpreg.cli.bench_pubsub import pubsub
from mpreg.cli.bench_queue import queue
from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

if TYPE_CHECKING:
    from mpreg.client import Client

WARM_UP = 200


@click.group()
def bench() -> None:
    """Measure a node, from this process."""


bench.add_command(queue)


bench.add_command(pubsub)
bench.add_command(cache)


@bench.command()
@node_options
@click.option("--secs", type=click.FloatRange(min=0.05, max=600), default=2.0, show_default=True, help="For each case.")
@click.option(
    "--size", type=click.IntRange(0, 10_000_000), default=64, show_default=True, help="Bytes of the argument."
)
@click.option(
    "--in-flight", type=click.IntRange(1, 8000), default=64, show_default=True, help="Calls at the same time."
)
@click.option("--fun", default="echo", show_default=True, help="A function that takes one text.")
@json_option
def rpc(secs: float, size: int, in_flight: int, fun: str, as_json: bool, **where: Any) -> None:
    """Measure calls: one after the other (latency), and many at the same time (throughput)."""
    url, figures = run(_measure(where, secs, size, in_flight, fun))
    if as_json:
        for figure in figures:
            write_json(figure)
        return
    from rich.console import Console
    from rich.table import Table

    click.echo(f"{fun} with {size} bytes at {url}")
    table = Table()
    for column in ("case", "metric", "value", "unit"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for figure in figures:
        table.add_row(figure["case"], figure["metric"], f"{figure['value']:,}", figure["unit"])
    Console().print(table)


async def _measure(
    where: dict[str, Any], secs: float, size: int, in_flight: int, fun: str
) -> tuple[str, list[dict[str, Any]]]:
    argument = "x" * size
    async with connecting(**where) as client:
        url = client.url or ""
        for _ in range(WARM_UP):
            await client.call(fun, argument)
        took = await _sequential(client, fun, argument, secs)
        calls, seconds = await _at_once(client, fun, argument, secs, in_flight)
    took.sort()
    many = f"{in_flight} in flight"
    return url, [
        _figure("sequential", "p50", round(took[len(took) // 2] * 1e6, 1), "us"),
        _figure("sequential", "p99", round(took[min(len(took) - 1, len(took) * 99 // 100)] * 1e6, 1), "us"),
        _figure("sequential", "calls", round(len(took) / sum(took)), "1/s"),
        _figure(many, "calls", round(calls / seconds), "1/s"),
    ]


def _figure(case: str, metric: str, value: float, unit: str) -> dict[str, Any]:
    return {"case": case, "peer": "mpreg", "metric": metric, "value": value, "unit": unit}


async def _sequential(client: Client, fun: str, argument: str, secs: float) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + secs
    before = time.perf_counter()
    while before < end:
        await client.call(fun, argument)
        now = time.perf_counter()
        took.append(now - before)
        before = now
    return took


async def _at_once(client: Client, fun: str, argument: str, secs: float, in_flight: int) -> tuple[int, float]:
    begin = time.perf_counter()
    end = begin + secs
    calls = 0

    async def caller() -> None:
        nonlocal calls
        while time.perf_counter() < end:
            await client.call(fun, argument)
            calls += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(caller())
    return calls, time.perf_counter() - begin

"""`mpreg bench pubsub`: how many messages a node delivers, and how soon, seen from here."""

from __future__ import annotations

import asyncio
import secrets
import struct
import time
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

if TYPE_CHECKING:
    from mpreg.client import Client
    from mpreg.wire.received import Message

STAMP: Final = struct.Struct(">Q")
BURST: Final = 50
"""Messages between two turns of the event loop."""
IDLE_S: Final = 2.0
"""After so long without a message no more is expected."""
STEP_S: Final = 0.001


@click.command()
@click.option("--secs", type=click.FloatRange(min=0.05, max=600), default=2.0, show_default=True, help="For each case.")
@click.option(
    "--size", type=click.IntRange(8, 10_000_000), default=100, show_default=True, help="Bytes of the payload."
)
@click.option(
    "--subscribers", type=click.IntRange(1, 1000), default=1, show_default=True, help="Each with a connection."
)
@node_options
@json_option
def pubsub(secs: float, size: int, subscribers: int, as_json: bool, **where: Any) -> None:
    """Measure topics: publish as fast as it goes (throughput), then at half of that rate (latency)."""
    figures = run(_measure(where, secs, size, subscribers))
    if as_json:
        for figure in figures:
            write_json(figure)
        return
    from rich.console import Console
    from rich.table import Table

    title = f"{size} bytes, 1 publisher, {subscribers} subscriber{'s' if subscribers > 1 else ''}"
    table = Table(title=title, title_justify="left")
    for column in ("case", "metric", "value", "unit"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for figure in figures:
        table.add_row(figure["case"], figure["metric"], f"{figure['value']:,}", figure["unit"])
    Console().print(table)


class _Sink:
    """What all subscribers got."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.count = 0
        self.first = self.last = 0
        self.took: list[int] = []

    def got(self, message: Message[bytes]) -> None:
        now = time.monotonic_ns()
        self.first = self.first or now
        self.count += 1
        self.last = now
        self.took.append(now - STAMP.unpack_from(message.payload)[0])

    async def expect(self, count: int) -> None:
        seen, since = self.count, time.monotonic()
        while self.count < count and time.monotonic() - since < IDLE_S:
            if self.count > seen:
                seen, since = self.count, time.monotonic()
            await asyncio.sleep(0.01)


async def _measure(where: dict[str, Any], secs: float, size: int, subscribers: int) -> list[dict[str, Any]]:
    topic = f"mpreg.bench.{secrets.token_hex(6)}"
    pad = bytes(size - STAMP.size)
    sink = _Sink()
    clients: list[Client] = []
    try:
        for _ in range(subscribers):
            clients.append(await connecting(**where))
            await clients[-1].subscribe(topic, payload_type=bytes, callback=sink.got)
        clients.append(await connecting(**where))
        publisher = clients[-1]
        sent, seconds = await _publish(publisher, topic, pad, secs, None)
        await sink.expect(sent * subscribers)
        delivered = sink.count / max(1e-9, (sink.last - sink.first) / 1e9)
        figures = [
            _figure("flood", "published", round(sent / seconds), "1/s"),
            _figure("flood", "delivered", round(delivered), "1/s"),
            _figure("flood", "lost", round(100 * (1 - sink.count / (sent * subscribers)), 3), "%"),
        ]
        sink.begin()
        rate = sent / seconds / 2
        sent, seconds = await _publish(publisher, topic, pad, secs, rate)
        await sink.expect(sent * subscribers)
        took = sorted(sink.took) or [0]
        return [
            *figures,
            _figure("half of it", "published", round(sent / seconds), "1/s"),
            _figure("half of it", "p50", round(took[len(took) // 2] / 1e3, 1), "us"),
            _figure("half of it", "p99", round(took[min(len(took) - 1, len(took) * 99 // 100)] / 1e3, 1), "us"),
        ]
    finally:
        for client in clients:
            await client.close()


async def _publish(client: Client, topic: str, pad: bytes, secs: float, rate: float | None) -> tuple[int, float]:
    """How many, in how many seconds, until the node had them all."""
    clock, pack = time.monotonic_ns, STAMP.pack
    begun = now = clock()
    end = begun + int(secs * 1e9)
    count = 0
    while now < end:
        due = BURST if rate is None else int((now - begun) * rate / 1e9) - count
        for _ in range(due):
            await client.publish(topic, pack(clock()) + pad)
        count += due
        await asyncio.sleep(0 if rate is None else STEP_S)
        now = clock()
    await client.publish(topic, pack(clock()) + pad, ack=True)
    return count + 1, (clock() - begun) / 1e9


def _figure(case: str, metric: str, value: float, unit: str) -> dict[str, Any]:
    return {"case": case, "peer": "mpreg", "metric": metric, "value": value, "unit": unit}

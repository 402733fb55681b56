"""`mpreg bench queue`: how fast messages go through a queue, seen from here."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

if TYPE_CHECKING:
    from mpreg.client import Queue


@click.command()
@click.option("--secs", type=click.FloatRange(min=0.05, max=600), default=2.0, show_default=True)
@click.option("--size", type=click.IntRange(0, 1_000_000), default=100, show_default=True, help="Bytes of a message.")
@click.option(
    "--in-flight", type=click.IntRange(1, 8000), default=64, show_default=True, help="Sends at the same time."
)
@click.option("--consumers", type=click.IntRange(1, 100), default=1, show_default=True)
@node_options
@json_option
def queue(secs: float, size: int, in_flight: int, consumers: int, as_json: bool, **where: Any) -> None:
    """Send, receive and acknowledge messages through a queue of its own, which is deleted in the end."""
    figures = run(_measure(where, secs, size, in_flight, consumers))
    if as_json:
        write_json(figures)
    else:
        print(f"{figures['rate']:,} messages/s sent, received and acknowledged ({figures['durability']})")
        print(f"{figures['p50_ms']:.2f} ms from a send until the store has it (median), {figures['p99_ms']:.2f} ms p99")


async def _measure(where: dict[str, Any], secs: float, size: int, in_flight: int, consumers: int) -> dict[str, Any]:
    name = f"bench-{secrets.token_hex(4)}"
    async with connecting(**where) as sender, connecting(**where) as receiver:
        own = sender.queue(name)
        await own.create(max_size=10_000_000)
        done = asyncio.Semaphore(0)
        consuming = [asyncio.create_task(_consume(receiver.queue(name), done)) for _ in range(consumers)]
        try:
            took: list[float] = []
            begun = time.perf_counter()
            end = begun + secs
            receipts = await asyncio.gather(*(_send(own, b"x" * size, end, took) for _ in range(in_flight)))
            for _ in took:
                await done.acquire()
            seconds = time.perf_counter() - begun
        finally:
            for task in consuming:
                task.cancel()
            await asyncio.wait(consuming)
            await own.delete()
    took.sort()
    return {
        "rate": round(len(took) / seconds),
        "messages": len(took),
        "durability": receipts[0],
        "p50_ms": round(took[len(took) // 2] * 1e3, 3),
        "p99_ms": round(took[len(took) * 99 // 100] * 1e3, 3),
    }


async def _send(own: Queue, body: bytes, end: float, took: list[float]) -> str:
    durability = ""
    before = time.perf_counter()
    while before < end:
        durability = (await own.send(body)).durability
        now = time.perf_counter()
        took.append(now - before)
        before = now
    return durability


async def _consume(own: Queue, done: asyncio.Semaphore) -> None:
    async for message in own.receive(payload_type=bytes, prefetch=256):
        message.ack().add_done_callback(lambda _: done.release())

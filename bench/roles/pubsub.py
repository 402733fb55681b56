"""The three roles of every peer of `pubsub`: what is between, the subscribers, the publisher. A peer is a module
`bench.roles.pubsub_<peer>` with `hub`, `subscribe` and `publisher`."""

from __future__ import annotations

import asyncio
import importlib
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from bench.load import NS, percentile_us
from bench.role import Orders

STAMP = struct.Struct(">Q")
PAD = b"p" * 92
BURST = 50
"""Messages between two turns of the event loop, when flooding."""
STEP_S = 0.001
IDLE_S = 1.0
"""After so long without a message nothing more is expected."""


class Sink:
    """What all subscribers of the process got."""

    def __init__(self) -> None:
        self.begin(False)

    def begin(self, timed: bool) -> None:
        self.count = 0
        self.first = self.last = 0
        self.latencies: list[int] | None = [] if timed else None

    def got(self, payload: bytes) -> None:
        now = time.monotonic_ns()
        if not self.count:
            self.first = now
        self.count += 1
        self.last = now
        if self.latencies is not None:
            self.latencies.append(now - STAMP.unpack_from(payload)[0])

    async def expect(self, count: int) -> dict[str, float]:
        while self.count < count and time.monotonic_ns() - max(self.last, 1) < IDLE_S * NS:
            await asyncio.sleep(0.02)
        answer = {
            "lost": 100 * (1 - self.count / count),
            "delivered": self.count / max(1e-9, (self.last - self.first) / NS),
        }
        if self.latencies:
            answer |= {"p50": percentile_us(self.latencies, 0.5), "p99": percentile_us(self.latencies, 0.99)}
        return answer


class Publisher(Protocol):
    """`send` publishes one payload, maybe as a coroutine; `settle` returns when the hub has what was sent, as far as
    the peer can tell."""

    send: Callable[[bytes], Awaitable[object] | None]

    async def settle(self) -> None: ...


class PeerModule(Protocol):
    def hub(self, **config: Any) -> AbstractAsyncContextManager[dict[str, Any]]: ...

    async def subscribe(self, sink: Sink, count: int, **config: Any) -> object: ...

    def publisher(self, **config: Any) -> AbstractAsyncContextManager[Publisher]: ...


def load(peer: str) -> PeerModule:
    module: Any = importlib.import_module(f"bench.roles.pubsub_{peer}")
    return module  # type: ignore[no-any-return]


@asynccontextmanager
async def nothing_between(**_: Any) -> AsyncIterator[dict[str, Any]]:
    """The broker is a process of its own already."""
    yield {}


async def hub(orders: Orders, peer: str, **config: Any) -> None:
    async with load(peer).hub(**config) as found:
        orders.answer(**found)
        await orders.ended()


async def subscribe(orders: Orders, peer: str, count: int, **config: Any) -> None:
    sink = Sink()
    kept = await load(peer).subscribe(sink, count, **config)
    orders.answer(ready=True)
    async for order in orders:
        if "begin" in order:
            sink.begin(order["timed"])
            orders.answer(begun=True)
        else:
            orders.answer(**await sink.expect(order["expect"]))
    del kept


async def publish(orders: Orders, peer: str, **config: Any) -> None:
    async with load(peer).publisher(**config) as publisher:
        orders.answer(ready=True)
        async for order in orders:
            start = time.monotonic_ns()
            end = start + int(order["secs"] * NS)
            if order["rate"]:
                count = await paced(publisher, end, order["rate"])
            else:
                count = await flood(publisher, end, order["most"])
            await publisher.settle()
            orders.answer(count=count, rate=count / ((time.monotonic_ns() - start) / NS))


async def flood(publisher: Publisher, end: int, most: int) -> int:
    send, clock, pack, count = publisher.send, time.monotonic_ns, STAMP.pack, 0
    awaited = asyncio.iscoroutinefunction(send)
    while (now := clock()) < end and count < most:
        payload = pack(now) + PAD
        if awaited:
            for _ in range(BURST):
                await send(payload)  # type: ignore[misc]
        else:
            for _ in range(BURST):
                send(payload)
        count += BURST
        await asyncio.sleep(0)
    return count


async def paced(publisher: Publisher, end: int, rate: float) -> int:
    send, clock, pack, count = publisher.send, time.monotonic_ns, STAMP.pack, 0
    awaited = asyncio.iscoroutinefunction(send)
    start = clock()
    while (now := clock()) < end:
        due = int((now - start) * rate / NS) - count
        for _ in range(due):
            payload = pack(clock()) + PAD
            if awaited:
                await send(payload)  # type: ignore[misc]
            else:
                send(payload)
        count += due
        await asyncio.sleep(STEP_S)
    return count

"""The roles of every peer of `queue`: what is between, the consumer, the producer. A peer is a module
`bench.roles.queue_<peer>` with `broker`, `consume` and `producer`."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from bench.load import NS
from bench.role import Orders

BODY = b"q" * 100
IDLE_S = 2.0
"""After so long without a message nothing more is expected."""

Send = Callable[[], Awaitable[int]]
"""Sends one message, or several where the peer is at its best with that; how many."""


class Done:
    """What has been received and acknowledged."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0

    def add(self, count: int = 1) -> None:
        self.count += count
        self.last = time.monotonic_ns()


class PeerModule(Protocol):
    def broker(self, **config: Any) -> AbstractAsyncContextManager[dict[str, Any]]: ...

    async def consume(self, done: Done, consumers: int, **config: Any) -> object: ...

    def producer(self, **config: Any) -> AbstractAsyncContextManager[Send]: ...


def load(peer: str) -> PeerModule:
    module: Any = importlib.import_module(f"bench.roles.queue_{peer}")
    return module  # type: ignore[no-any-return]


@asynccontextmanager
async def nothing_between(**_: Any) -> AsyncIterator[dict[str, Any]]:
    """The broker is a process of its own already."""
    yield {}


async def broker(orders: Orders, peer: str, **config: Any) -> None:
    async with load(peer).broker(**config) as found:
        orders.answer(**found)
        await orders.ended()


async def consume(orders: Orders, peer: str, consumers: int, **config: Any) -> None:
    done = Done()
    kept = await load(peer).consume(done, consumers, **config)
    orders.answer(ready=True)
    async for order in orders:
        begun = time.monotonic_ns()
        while done.count < order["expect"] and time.monotonic_ns() - max(done.last, begun) < IDLE_S * NS:
            await asyncio.sleep(0.02)
        orders.answer(count=done.count, last=done.last)
    del kept


async def produce(orders: Orders, peer: str, **config: Any) -> None:
    async with load(peer).producer(**config) as send:
        orders.answer(ready=True)
        async for order in orders:
            start = time.monotonic_ns()
            end = start + int(order["secs"] * NS)
            counts = await asyncio.gather(*(_sender(send, end) for _ in range(order["in_flight"])))
            count = sum(counts)
            orders.answer(start=start, count=count, rate=count / ((time.monotonic_ns() - start) / NS))


async def _sender(send: Send, end: int) -> int:
    clock, count = time.monotonic_ns, 0
    while clock() < end:
        count += await send()
    return count

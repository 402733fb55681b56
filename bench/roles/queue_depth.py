"""What an operation costs, and a message takes, while many messages wait: the scripts alone, in batches of 64. Messages
that are alike lie in the store together; else every other one has another priority, so that each is there by itself."""

from __future__ import annotations

import time

from bench.role import Orders
from mpreg.queues.message import Message
from mpreg.queues.parcels import parcels_of
from mpreg.queues.records import Lease, Packed, Taker
from mpreg.queues.settings import QueueSettings
from mpreg.queues.state import SEND_MAX, Queue
from mpreg.store import Store, connect

BODY = b"q" * 100
BATCH = 64
TOPIC = "order.new"


def messages(count: int, alike: bool) -> list[Packed]:
    metas = [Message(payload=BODY, topic=TOPIC, priority=priority).check().meta() for priority in (0, 1)]
    return [Packed(metas[0 if alike else n % 2], BODY) for n in range(count)]


async def used_bytes(store: Store) -> int:
    info = (await store.command("INFO", "memory")).decode()
    return int(next(line.partition(":")[2] for line in info.splitlines() if line.startswith("used_memory:")))


async def server_s(store: Store) -> float:
    """CPU that the server has used."""
    info = (await store.command("INFO", "cpu")).decode()
    used = ("used_cpu_sys:", "used_cpu_user:")
    return sum(float(line.partition(":")[2]) for line in info.splitlines() if line.startswith(used))


async def run(orders: Orders, url: str, socket: str, waiting: int, alike: bool) -> None:
    async with await connect(f"unix://{socket}") as store:
        queue = Queue(store, f"depth-{waiting}-{alike}")
        await queue.create(QueueSettings(max_size=10_000_000))
        before = await used_bytes(store)
        for done in range(0, waiting, SEND_MAX):
            count = min(SEND_MAX, waiting - done)
            await queue.send_parcels(parcels_of(messages(count, alike)), deduplicates=False)
        bytes_each = (await used_bytes(store) - before) / waiting - len(BODY)
        orders.answer(ready=True)
        async for order in orders:
            end = time.perf_counter() + order["secs"]
            begun, used, operations = time.perf_counter(), await server_s(store), 0
            parcels = parcels_of(messages(BATCH, alike))
            while time.perf_counter() < end:
                await queue.send_parcels(parcels, deduplicates=False)
                batch = await queue.claim([Taker("c", BATCH)])
                await queue.acknowledge([Lease(held, "c") for one in batch.claimed for held in one.held])
                operations += BATCH
            rate = operations / (time.perf_counter() - begun)
            each_us = (await server_s(store) - used) / operations * 1e6
            orders.answer(
                figures={"rate": (rate, "msgs/s"), "server": (each_us, "us"), "bytes": (bytes_each, "B over payload")}
            )
        await queue.delete()

"""One process that sends or receives through whichever node there is, and writes down all that it does:
`python -m tests.chaos.queue_worker ROLE QUEUE NUMBER FILE URL…`. It ends when its stdin closes.

Each record is one `write` on a file opened for appending, so what was written survives any kill.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from typing import Any

import msgspec
from tests.chaos.queue_history import Event

from mpreg.client import Client, Message, connect
from mpreg.errors import MpregError

GROUPS = 8
PACE_S = 0.04
"""Between two sends of a producer, so that what is left in the end can be drained."""
BURST = 16
SLOW = 0.02
"""The share of messages that take longer than their first lease."""


class Worker:
    def __init__(self, client: Client, queue: str, number: int, file: int, stop: asyncio.Event) -> None:
        self.client = client
        self.queue = client.queue(queue)
        self.number = number
        self.file = file
        self.stop = stop
        self.is_fifo = queue.startswith("fifo")

    def record(self, **fields: Any) -> None:
        os.write(self.file, msgspec.json.encode(Event(process=self.number, **fields)) + b"\n")

    async def produce(self) -> None:
        if self.number % 2 and not self.is_fifo:
            await self.produce_bursts()
            return
        number = 0
        while not self.stop.is_set():
            number += 1
            key = f"{self.number}/{number}"
            group = f"g{self.number}-{number % GROUPS}" if self.is_fifo else ""
            self.record(what="sending", key=key, group=group)
            while not self.stop.is_set():
                try:
                    receipt = await self.queue.send({"key": key, "group": group}, group=group, dedup_id=key, timeout=10)
                except MpregError:
                    continue  # it may or may not be stored, and the id keeps it from being there twice
                self.record(what="sent", key=key, group=group, message_id=receipt.message_id)
                break
            await asyncio.sleep(random.uniform(0, 2 * PACE_S))  # the pace

    async def produce_bursts(self) -> None:
        """Messages that are alike and leave together, so that the store has them as one. Without an id that would make
        it safe, none is sent twice: of those whose end nobody knows, nothing is claimed."""
        number = 0
        while not self.stop.is_set():
            keys = [f"{self.number}/{number + n}" for n in range(1, random.randint(2, BURST))]
            number += len(keys)
            for key in keys:
                self.record(what="sending", key=key)
            payloads = [{"key": key, "group": ""} for key in keys]
            receipts = await self.queue.send_many(payloads, timeout=10)
            for key, receipt in zip(keys, receipts, strict=True):
                if not isinstance(receipt, MpregError):
                    self.record(what="sent", key=key, message_id=receipt.message_id)
            await asyncio.sleep(random.uniform(0, len(keys) * PACE_S))

    async def consume(self) -> None:
        while not self.stop.is_set():
            try:
                await self.queue.work(self.handle, concurrency=4, visibility=1.0)
            except MpregError:
                continue

    async def handle(self, message: Message[dict[str, str]]) -> None:
        payload = message.payload
        common = {
            "key": payload["key"],
            "group": payload["group"],
            "message_id": message.message_id,
            "receipt": message.receipt,
            "retry_count": message.retry_count,
        }
        lease_from = message.lease_until - message.lease_s
        self.record(what="received", lease_from=lease_from, lease_until=message.lease_until, **common)
        await asyncio.sleep(2.5 if random.random() < SLOW else random.uniform(0, 0.02))  # the work
        try:
            if random.random() < 0.05:
                self.record(what="retrying", lease_until=message.lease_until, **common)
                await message.retry(after=random.choice([0, 0.1]))
                self.record(what="retried", lease_until=message.lease_until, **common)
            else:
                await message.ack()
                self.record(what="acknowledged", lease_until=message.lease_until, **common)
        except MpregError:
            self.record(what="stale", **common)


async def main() -> None:
    role, queue, number, file, *urls = sys.argv[1:]
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with connect(urls, patience_s=60) as client:
        worker = Worker(client, queue, int(number), opened, stop)
        working = asyncio.create_task(worker.produce() if role == "produce" else worker.consume())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if role == "consume":
            working.cancel()
        await asyncio.wait({working}, timeout=20)
        if working.done() and not working.cancelled():
            working.result()


if __name__ == "__main__":
    asyncio.run(main())

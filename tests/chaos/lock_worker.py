"""One process that takes a lock again and again, writes to a guarded resource while it holds it, and writes down all
that it does: `python -m tests.chaos.lock_worker URL NAME TTL_S NUMBER FILE`. It ends when its stdin closes.

Each record is one `write` on a file opened for appending, so what was written survives any kill.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading

import msgspec
from tests.chaos.lock_history import Event, What

from mpreg.errors import StoreError
from mpreg.store import Script, Store, connect
from mpreg.store.lock import Lock
from mpreg.store.lock_held import Held, lease_clock

# What a resource does with a fence: it takes a write, counts it, and refuses whoever was overtaken.
GUARDED_WRITE = Script.of(
    """
    local last = redis.call('GET', KEYS[1])
    if last and tonumber(ARGV[1]) < tonumber(last) then return 0 end
    redis.call('SET', KEYS[1], ARGV[1])
    return redis.call('INCR', KEYS[2])
    """
)


class Worker:
    def __init__(self, store: Store, lock: Lock, number: int, file: int, stop: asyncio.Event) -> None:
        self.store = store
        self.lock = lock
        self.number = number
        self.file = file
        self.stop = stop

    def event(self, what: What, held: Held, *, valid_until: float = 0.0, number: int = 0) -> Event:
        return Event(lease_clock(), self.number, what, held.fence, valid_until or held.valid_until, number)

    def record(self, *events: Event) -> None:
        os.write(self.file, b"".join(msgspec.json.encode(event) + b"\n" for event in events))

    async def run(self) -> None:
        while not self.stop.is_set():
            try:
                held = await self.lock.acquire(wait_s=2)
            except StoreError:
                continue
            self.record(self.event("acquired", held))
            await self.work(held)

    async def work(self, held: Held) -> None:
        believed = held.valid_until
        for _ in range(random.randint(1, 6)):
            written: int = await self.store.script(GUARDED_WRITE, ["{r}guard", "{r}writes"], [held.fence])
            overslept = lease_clock() >= believed
            if overslept:
                assert not held.valid
                self.record(self.event("resumed", held, valid_until=believed), self.event("lost", held))
            self.record(self.event("wrote" if written else "refused", held, number=written))
            if overslept:
                break
            await asyncio.sleep(random.uniform(0, self.lock.ttl_s / 4))
            if not held.valid:
                self.record(self.event("resumed", held, valid_until=believed), self.event("lost", held))
                break
            if held.valid_until > believed:
                believed = held.valid_until
                self.record(self.event("renewed", held))
        else:
            self.record(self.event("released", held))
        try:
            await held.release()
        except StoreError:
            return


async def main(url: str, name: str, ttl_s: float, number: int, path: str) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def wait_for_the_end() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with await connect(url, name=f"worker-{number}") as store:
        lock = Lock(store, name, ttl_s=ttl_s, owner=f"p{number}")
        os.write(1, b"ready\n")
        await Worker(store, lock, number, file, stop).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))

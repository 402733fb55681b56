"""redis-py's asyncio Lock, as its documentation shows it."""

from __future__ import annotations

from collections import deque

from redis.asyncio import Redis

from bench.load import obey
from bench.locks import TTL_S
from bench.role import Orders


async def pairs(orders: Orders, url: str, contended: bool) -> None:
    client = Redis.from_url(url)
    free = deque(f"lock:{n}" for n in range(64))

    async def alone() -> None:
        name = free.popleft()
        lock = client.lock(name, timeout=TTL_S)
        assert await lock.acquire(blocking=False)
        await lock.release()
        free.append(name)

    async def wanted() -> None:
        async with client.lock("lock:wanted", timeout=TTL_S):
            pass

    orders.answer(ready=True)
    await obey(orders, wanted if contended else alone, unit="pairs/s")
    await client.aclose()

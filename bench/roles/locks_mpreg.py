"""MPREG's lock: a new `Lock` for each pair, as a program has it that locks by name."""

from __future__ import annotations

from collections import deque

from bench.load import obey
from bench.locks import TTL_S
from bench.role import Orders
from mpreg.store import connect
from mpreg.store.lock import Lock


async def pairs(orders: Orders, url: str, contended: bool) -> None:
    async with await connect(url) as store:
        free = deque(f"lock:{n}" for n in range(64))

        async def alone() -> None:
            name = free.popleft()
            held = await Lock(store, name, ttl_s=TTL_S).acquire(wait_s=0)
            assert await held.release()
            free.append(name)

        async def wanted() -> None:
            async with Lock(store, "lock:wanted", ttl_s=TTL_S).hold(wait_s=60):
                pass

        orders.answer(ready=True)
        await obey(orders, wanted if contended else alone, unit="pairs/s")

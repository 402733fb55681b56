"""What the link alone allows: SET NX PX and DELIFEQ, and nothing else that a lock needs."""

from __future__ import annotations

import itertools
from collections import deque

from bench.load import obey
from bench.locks import TTL_S
from bench.role import Orders
from mpreg.store import connect


async def pairs(orders: Orders, url: str, contended: bool) -> None:
    assert not contended
    async with await connect(url) as store:
        free = deque(f"lock:{n}" for n in range(64))
        numbers = itertools.count()

        async def alone() -> None:
            name, token = free.popleft(), next(numbers)
            assert await store.send("SET", name, token, "NX", "PX", TTL_S * 1000) == b"OK"
            assert await store.send("DELIFEQ", name, token) == 1
            free.append(name)

        orders.answer(ready=True)
        await obey(orders, alone, unit="pairs/s")

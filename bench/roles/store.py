"""The part of a store client's role that is the same for all: the two calls, their check, and obeying orders."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from bench.load import run
from bench.role import Orders
from bench.store import KEYS, VALUE


async def serve(
    orders: Orders, get: Callable[[str], Awaitable[Any]], put: Callable[[str, bytes], Awaitable[Any]]
) -> None:
    keys = [f"key:{n}" for n in range(KEYS)]
    for key in keys:
        await put(key, VALUE)
    following = itertools.cycle(keys).__next__

    async def call_get() -> None:
        assert await get(following()) == VALUE

    async def call_set() -> None:
        await put(following(), VALUE)

    calls = {"get": call_get, "set": call_set}
    orders.answer(ready=True)
    async for order in orders:
        found = await run(calls[order["verb"]], callers=order["callers"], secs=order["secs"], unit="ops/s")
        orders.answer(figures=found)

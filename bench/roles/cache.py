"""The part of a cache's role that is the same for all: the calls, their check, and obeying orders."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from bench.cache import KEYS
from bench.load import run
from bench.role import Orders

Get = Callable[[str], Awaitable[Any]]


async def serve(
    orders: Orders, value: Any, get: Get, get_strong: Get, put: Callable[[str, Any], Awaitable[Any]], incr: Get
) -> None:
    keys = [f"key:{n}" for n in range(KEYS)]
    for key in keys:
        await put(key, value)
        assert await get(key) == value
    following = itertools.cycle(keys).__next__

    async def call_get() -> None:
        assert await get(following()) == value

    async def call_get_strong() -> None:
        assert await get_strong(following()) == value

    async def call_put() -> None:
        await put(following(), value)

    async def call_incr() -> None:
        await incr("counter")

    calls = {"get": call_get, "get_strong": call_get_strong, "put": call_put, "incr": call_incr}
    orders.answer(ready=True)
    async for order in orders:
        found = await run(calls[order["verb"]], callers=order["callers"], secs=order["secs"], unit="ops/s")
        orders.answer(figures=found)

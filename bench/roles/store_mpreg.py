"""The store of MPREG, as its users call it."""

from __future__ import annotations

from bench.role import Orders
from bench.roles.store import serve
from mpreg.store import connect


async def calls(orders: Orders, url: str, path: str, tcp: bool = False) -> None:
    async with await connect(url if tcp else f"unix://{path}") as store:
        send = store.send
        await serve(orders, lambda key: send("GET", key), lambda key, value: send("SET", key, value))

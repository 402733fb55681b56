"""A node on the Valkey of the run, by its unix socket, and a client of the node over TCP."""

from __future__ import annotations

from functools import partial

from bench.cache import VALUE
from bench.role import Orders
from bench.roles import cache
from mpreg import Node, Settings, connect


async def serve(orders: Orders, url: str, path: str, near: int = 0) -> None:
    async with Node("bench", Settings(store=f"unix://{path}", ws="off", tcp=0)) as node:
        orders.answer(node=node.listeners["tcp"])
        await orders.ended()


async def calls(orders: Orders, url: str, path: str, node: str, near: int = 0) -> None:
    async with connect(node) as client:
        handle = client.cache("bench", near=near)
        strong = partial(handle.get, consistency="strong")
        await cache.serve(orders, VALUE, handle.get, strong, handle.put, handle.incr)

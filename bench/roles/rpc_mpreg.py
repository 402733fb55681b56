"""A node and a client of MPREG."""

from __future__ import annotations

from bench.load import obey
from bench.role import Orders
from bench.rpc import TEXT
from mpreg import Node, Settings, connect


async def serve(orders: Orders, scheme: str) -> None:
    ports = {"ws": "off", "tcp": "off", scheme: 0}
    node = Node("bench", Settings(store="off", **ports))  # type: ignore[arg-type]  # every value is a port

    @node.function
    async def same(text: str) -> str:
        return text

    async with node:
        orders.answer(url=node.listeners[scheme])
        await orders.ended()


async def ask(orders: Orders, scheme: str, url: str) -> None:
    async with connect(url) as client:

        async def call() -> None:
            assert await client.call("same", TEXT) == TEXT

        orders.answer(ready=True)
        await obey(orders, call)

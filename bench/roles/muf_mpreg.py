"""MUF units of MPREG."""

from __future__ import annotations

from bench.load import obey
from bench.muf import DATA
from bench.role import Orders
from mpreg.apps.muf import Request, Unit


async def serve(orders: Orders, url: str, socket: str, group: str | None = None) -> None:
    async with await Unit.connect("BACKEND", f"unix://{socket}") as unit:

        @unit.on_request(group=group, concurrency=256)
        async def same(request: Request) -> bytes:
            return request.raw

        await unit.ready()
        orders.answer(ready=True)
        await orders.ended()


async def ask(orders: Orders, url: str, socket: str, group: str | None = None) -> None:
    async with await Unit.connect("FRONTEND", f"unix://{socket}") as unit:

        async def call() -> None:
            assert await unit.request(DATA) == DATA

        orders.answer(ready=True)
        await obey(orders, call)

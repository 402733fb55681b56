"""coredis, with as many connections as it asks for."""

from __future__ import annotations

import coredis

from bench.role import Orders
from bench.roles.store import serve


async def calls(orders: Orders, url: str, path: str) -> None:
    async with coredis.Redis(unix_socket_path=path, max_connections=600) as client:
        await serve(orders, client.get, client.set)

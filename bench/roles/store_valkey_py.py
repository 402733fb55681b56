"""valkey-py, its asyncio client, with as many connections as it asks for."""

from __future__ import annotations

from valkey.asyncio import Valkey

from bench.role import Orders
from bench.roles.store import serve


async def calls(orders: Orders, url: str, path: str) -> None:
    client = Valkey(unix_socket_path=path, max_connections=600)
    await serve(orders, client.get, client.set)
    await client.aclose()

"""redis-py, its asyncio client, with as many connections as it asks for; values are bytes, nothing is decoded."""

from __future__ import annotations

from redis.asyncio import Redis

from bench.cache import VALUE
from bench.role import Orders
from bench.roles import cache


async def calls(orders: Orders, url: str, path: str, unix: bool = False) -> None:
    client = Redis(unix_socket_path=path, max_connections=600) if unix else Redis.from_url(url, max_connections=600)
    await cache.serve(orders, VALUE.encode(), client.get, client.get, client.set, client.incr)
    await client.aclose()

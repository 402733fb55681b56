"""valkey-glide, whose core in Rust shares one connection."""

from __future__ import annotations

from urllib.parse import urlsplit

from glide import GlideClient, GlideClientConfiguration, NodeAddress

from bench.cache import VALUE
from bench.role import Orders
from bench.roles import cache


async def calls(orders: Orders, url: str, path: str) -> None:
    place = urlsplit(url)
    settings = GlideClientConfiguration(
        [NodeAddress(place.hostname or "", place.port or 0)], inflight_requests_limit=2000
    )
    client = await GlideClient.create(settings)
    await cache.serve(orders, VALUE.encode(), client.get, client.get, client.set, client.incr)
    await client.close()

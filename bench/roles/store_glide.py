"""valkey-glide, whose core in Rust shares one connection; it has no unix sockets."""

from __future__ import annotations

from urllib.parse import urlsplit

from glide import GlideClient, GlideClientConfiguration, NodeAddress

from bench.role import Orders
from bench.roles.store import serve


async def calls(orders: Orders, url: str, path: str) -> None:
    place = urlsplit(url)
    settings = GlideClientConfiguration(
        [NodeAddress(place.hostname or "", place.port or 0)], inflight_requests_limit=2000
    )
    client = await GlideClient.create(settings)
    await serve(orders, client.get, client.set)
    await client.close()

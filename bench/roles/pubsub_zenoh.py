"""eclipse-zenoh: the subscribers' sessions are clients of the publisher's; there is no router between the two."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import zenoh

from bench.roles.pubsub import Sink
from bench.servers import free_port

JOIN_S = 1.5
KEY = "bench/topic"


@asynccontextmanager
async def hub(**_: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"url": f"tcp/127.0.0.1:{free_port()}"}


def session(**settings: str) -> Any:
    config = zenoh.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    for name, value in settings.items():
        config.insert_json5(name.replace("_", "/"), value)
    return zenoh.open(config)


async def subscribe(sink: Sink, count: int, url: str, **_: Any) -> object:
    """They connect when the publisher listens, in a thread that keeps trying."""
    lock = threading.Lock()
    kept: list[Any] = []

    def got(sample: Any) -> None:
        payload = sample.payload.to_bytes()
        with lock:
            sink.got(payload)

    def join() -> None:
        for _number in range(count):
            while True:
                try:
                    opened = session(mode='"client"', connect_endpoints=f'["{url}"]')
                    break
                except Exception:
                    threading.Event().wait(0.05)
            kept.append((opened, opened.declare_subscriber(KEY, got)))

    threading.Thread(target=join, daemon=True).start()
    return kept


class _Publisher:
    def __init__(self, publisher: Any) -> None:
        self.send = publisher.put

    async def settle(self) -> None:
        return


@asynccontextmanager
async def publisher(url: str, count: int, **_: Any) -> AsyncIterator[_Publisher]:
    opened = session(listen_endpoints=f'["{url}"]')
    declared = opened.declare_publisher(KEY, congestion_control=zenoh.CongestionControl.BLOCK)
    await asyncio.sleep(JOIN_S * (1 if count == 1 else 3))
    yield _Publisher(declared)

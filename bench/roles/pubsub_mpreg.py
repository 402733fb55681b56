"""A node of MPREG and its clients, each subscriber with a connection of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.roles.pubsub import Sink
from mpreg import Node, Settings, connect
from mpreg.wire.received import Message


@asynccontextmanager
async def hub(scheme: str, **_: Any) -> AsyncIterator[dict[str, Any]]:
    ports = {"ws": "off", "tcp": "off", scheme: 0}
    node = Node("bench", Settings(store="off", **ports))  # type: ignore[arg-type]  # every value is a port
    async with node:
        yield {"url": node.listeners[scheme]}


async def subscribe(sink: Sink, count: int, url: str, **_: Any) -> object:
    got = sink.got

    def callback(message: Message[bytes]) -> None:
        got(message.payload)

    clients = [await connect(url) for _ in range(count)]
    for client in clients:
        await client.subscribe("bench.#", payload_type=bytes, callback=callback)
    return clients


class _Publisher:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def send(self, payload: bytes) -> None:
        await self._client.publish("bench.topic", payload)

    async def settle(self) -> None:
        await self._client.call("echo", 1)


@asynccontextmanager
async def publisher(url: str, **_: Any) -> AsyncIterator[_Publisher]:
    async with connect(url) as client:
        yield _Publisher(client)

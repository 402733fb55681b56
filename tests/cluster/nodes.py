"""Real nodes of one cluster in one process and one event loop, linked over loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from mpreg.client import Client, connect
from mpreg.node import Node, Settings

FAST: dict[str, Any] = {"ws": "off", "tcp": 0, "store": "off", "membership": "local", "grace_s": 2}


def settings(**changes: Any) -> Settings:
    return Settings(**{**FAST, "cluster": "test", **changes})


class Nodes:
    """Named a, b, c, …; each joins by the address of the first."""

    def __init__(self) -> None:
        self.by_name: dict[str, Node] = {}
        self._stack = contextlib.AsyncExitStack()

    async def start(self, node: Node) -> Node:
        running = [other for other in self.by_name.values() if other is not node]
        if running and not node.settings.join:
            node.settings = msgspec.structs.replace(node.settings, join=(running[0].listeners["tcp"],))
        await node.start()
        self._stack.push_async_callback(node.stop, 0)
        self.by_name[node.name] = node
        return node

    async def client(self, node: Node) -> Client:
        return await self._stack.enter_async_context(connect(node.listeners["tcp"]))

    async def close(self) -> None:
        await self._stack.aclose()


def links_of(node: Node) -> set[str]:
    clustering = node._started().services.clustering
    assert clustering is not None
    return set(clustering.cluster.links.nodes)


def known_to(node: Node) -> set[str]:
    """Nodes whose functions it knows."""
    clustering = node._started().services.clustering
    assert clustering is not None
    return {session.node_id for session in clustering.placement.offers}


async def until(holds: Callable[[], bool], what: str = "") -> None:
    """Nothing tells when a far node has heard of something, so it is asked."""
    try:
        async with asyncio.timeout(15):
            while not holds():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"it never came to this: {what or holds}") from None


async def linked(*nodes: Node) -> None:
    names = {node.name for node in nodes}
    await until(
        lambda: all(known_to(node) == names - {node.name} for node in nodes),
        f"all of {sorted(names)} linked with each other",
    )


@contextlib.asynccontextmanager
async def cluster(*nodes: Node) -> AsyncIterator[Nodes]:
    """Started, and linked each with each."""
    running = Nodes()
    try:
        for node in nodes:
            await running.start(node)
        await linked(*nodes)
        yield running
    finally:
        await running.close()

"""After clients are gone nothing of them is left in a node: no task, no pending entry, no subscription, no timer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.certificates import make_certificates

from mpreg.client import Client, connect
from mpreg.node import Node, Settings
from mpreg.transport import Link, Session, TlsFiles
from mpreg.wire.encoding import Encoding

pytestmark = pytest.mark.anyio

SCHEMES = ("ws", "wss", "tcp", "tcps", "in process")


@pytest.fixture
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    files = make_certificates(tmp_path_factory.mktemp("certificates"))
    tls = {"tls_cert": files.cert, "tls_key": files.key, "tls_ca": files.ca}
    node = Node("n", Settings(ws=0, wss=0, tcp=0, tcps=0, store="off", **tls))  # type: ignore[arg-type]  # all are paths

    @node.function
    async def wait() -> None:
        await asyncio.Event().wait()

    async with node:
        yield node


async def client_of(node: Node, scheme: str) -> Client:
    trust = TlsFiles(ca=node.settings.tls_ca) if scheme in ("wss", "tcps") else None
    return await connect(node if scheme == "in process" else node.listeners[scheme], tls=trust)


async def counts(client: Client) -> dict[str, Any]:
    stats = await client.call("mpreg.stats", result_type=dict[str, Any])
    rpc, topics = stats["rpc"], stats["topic_exchange"]
    return {
        "connections": rpc["active_connections"],
        "requests": rpc["running_requests"],
        "subscriptions": topics["active_subscriptions"],
    }


async def busy(client: Client, node: Node, number: int) -> list[asyncio.Task[Any]]:
    """Calls under way and subscriptions, in this client and in the node."""
    calls = [asyncio.create_task(client.call("wait")) for _ in range(5)]
    for each in range(3):
        await client.subscribe(f"left.{number}.{each}.#").__aenter__()
    await client.call("echo", 1)  # behind the others, so they have begun
    return calls


@pytest.mark.parametrize("how", ["closed", "aborted", "cancelled"])
async def test_nothing_is_left_of_clients_that_are_gone(node: Node, how: str) -> None:
    async with connect(node) as witness:
        await witness.call("echo", 1)
        tasks, before = asyncio.all_tasks(), await counts(witness)
        running = node._started()
        deadlines = len(running.services.deadlines)
        clients = [await client_of(node, scheme) for scheme in SCHEMES for _ in range(2)]
        calls = [call for number, client in enumerate(clients) for call in await busy(client, node, number)]
        during = await counts(witness)
        assert during["connections"] == before["connections"] + len(clients)
        assert during["requests"] == before["requests"] + len(calls)
        assert during["subscriptions"] == before["subscriptions"] + 3 * len(clients)
        links: list[Link] = [session.link for session in running.dispatch.sessions]
        if how == "cancelled":
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            assert [client.calls_open for client in clients] == [0] * len(clients)
        for client in clients:
            if how == "aborted":
                abort(client)
            await client.close()
        await asyncio.gather(*calls, return_exceptions=True)
        while await counts(witness) != before:
            await asyncio.sleep(0)
        assert len([link for link in links if not link.closed]) == 1
        assert len(running.services.deadlines) == deadlines
        assert running.services.rpc._open == {}
        while len(asyncio.all_tasks()) > len(tasks):  # a node keeps one spare task, not always the same
            await asyncio.sleep(0)
        del links, clients, calls
        gc.collect()
        sessions = [each for each in gc.get_objects() if isinstance(each, Session)]
        assert {id(each) for each in sessions} == {id(each) for each in running.dispatch.sessions}


def abort(client: Client) -> None:
    """As if its process had been killed."""
    current = client._exchange.current
    assert current is not None
    transport = getattr(current.link, "_transport", None)
    if transport is not None:
        transport.abort()


async def test_a_node_that_was_stopped_leaves_no_task(node: Node) -> None:
    other = Node("other", Settings(ws=0, tcp=0, store="off"))
    tasks = asyncio.all_tasks()
    await other.start()
    client = await connect(other.listeners["ws"], encoding=Encoding.JSON)
    await client.call("echo", 1)
    await other.stop()
    await client.close()
    while asyncio.all_tasks() - tasks:
        await asyncio.sleep(0)

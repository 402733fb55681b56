"""How services live and end with their node, in what order, and what is left when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mpreg.client import connect
from mpreg.errors import ConfigError, QueueError
from mpreg.node import Node, Settings
from mpreg.node.service import Service
from mpreg.node.services import Services
from mpreg.transport.session import Session
from mpreg.wire.encoding import Encoding
from mpreg.wire.lifecycle import Goodbye
from mpreg.wire.rpc import Rpc

pytestmark = pytest.mark.anyio

QUIET = Settings(ws="off", tcp="off", store="off")

Extra = Callable[..., None]


@pytest.fixture
def extra(monkeypatch: pytest.MonkeyPatch) -> Extra:
    """One more service, after those that every node has."""

    def add(service: Service) -> None:
        before = Services.all
        monkeypatch.setattr(Services, "all", lambda self: [*before(self), service])

    return add


def noting(name: str, told: list[str]) -> Service:
    async def start() -> None:
        told.append(f"{name} start")

    async def listening(urls: Mapping[str, str]) -> None:
        told.append(f"{name} listening at {sorted(urls)}")

    async def drain(grace_s: float) -> None:
        told.append(f"{name} drain {grace_s:.0f}")

    async def close() -> None:
        told.append(f"{name} close")

    return Service(name=name, start=start, listening=listening, drain=drain, close=close, report=lambda: {"told": told})


async def test_services_start_before_anybody_can_connect_and_close_in_the_opposite_order(extra: Extra) -> None:
    told: list[str] = []
    extra(noting("a", told))
    extra(noting("b", told))
    async with Node("n", Settings(ws=0, tcp=0, store="off", grace_s=7)):
        assert told == ["a start", "b start", "a listening at ['tcp', 'ws']", "b listening at ['tcp', 'ws']"]
        told.clear()
    assert told == ["a drain 7", "b drain 7", "b close", "a close"]


async def test_a_service_that_can_not_start_ends_the_start_and_nothing_is_left(extra: Extra) -> None:
    told: list[str] = []

    async def fail() -> None:
        raise RuntimeError("no")

    extra(noting("a", told))
    extra(Service(name="b", start=fail, close=lambda: told.append("b close")))
    node = Node("n", QUIET)
    before = asyncio.all_tasks()
    with pytest.raises(RuntimeError, match="no"):
        await node.start()
    assert told == ["a start", "b close", "a close"]
    assert asyncio.all_tasks() == before
    with pytest.raises(RuntimeError, match="does not run"):
        _ = node.listeners


async def test_a_service_that_ends_badly_keeps_no_other_from_ending(extra: Extra) -> None:
    told: list[str] = []

    async def fail(grace_s: float = 0) -> None:
        raise RuntimeError("no")

    extra(noting("a", told))
    extra(Service(name="b", drain=fail, close=fail))
    extra(noting("c", told))
    async with Node("n", QUIET):
        told.clear()
    assert told == ["a drain 10", "c drain 10", "c close", "a close"]


async def test_messages_reach_their_service_and_it_hears_when_a_connection_ends(extra: Extra) -> None:
    sessions: list[Session] = []
    gone = asyncio.Event()

    def take(session: Session, message: Goodbye, encoding: Encoding) -> None:
        sessions.append(session)
        raise QueueError("QUEUE_NOT_FOUND", "there is none")

    def closed(session: Session) -> None:
        sessions.append(session)
        gone.set()

    extra(Service(name="a", handlers={Goodbye: take}, closed=closed))
    async with Node("n", QUIET) as node, connect(node) as client:
        with pytest.raises(QueueError) as caught:
            await client.ask(Goodbye(u=client.new_u()), Goodbye)
        assert caught.value.code == "QUEUE_NOT_FOUND"
        await client.close()
        await gone.wait()
    assert len(sessions) == 2
    assert sessions[0] is sessions[1]


async def test_a_message_is_one_service_s(extra: Extra) -> None:
    extra(Service(name="a", handlers={Rpc: lambda *_: None}))
    with pytest.raises(AssertionError, match="two services"):
        await Node("n", QUIET).start()


async def test_statistics_have_a_part_for_each_service(extra: Extra) -> None:
    extra(Service(name="a", report=lambda: {"orders": 3}))
    async with Node("n", QUIET) as node, connect(node) as client:
        await client.call("echo", 1)
        statistics = await client.call("mpreg.stats")
    assert {"rpc", "topic_exchange", "message_queues"} < statistics.keys()
    assert list(statistics)[-1] == "a"
    assert statistics["a"] == {"orders": 3}
    rpc = statistics["rpc"]
    assert (rpc["total_requests"], rpc["successful_requests"], rpc["active_connections"]) == (1, 1, 1)


async def test_what_lives_beside_a_node_is_entered_when_it_can_be_reached_and_left_before_it_takes_leave() -> None:
    told: list[Any] = []
    node = Node("n", QUIET)

    @asynccontextmanager
    async def part(name: str) -> AsyncIterator[None]:
        async with connect(node) as client:
            told.append((name, await client.call("echo", 1)))
            yield
            told.append((name, await client.call("echo", 2)))

    node.beside(part("a"))
    node.beside(part("b"))
    async with node:
        assert told == [("a", 1), ("b", 1)]
        told.clear()
    assert told == [("b", 2), ("a", 2)]


async def test_a_part_that_can_not_be_entered_stops_the_node() -> None:
    node = Node("n", QUIET)

    @asynccontextmanager
    async def part() -> AsyncIterator[None]:
        raise ConfigError("CONFIG_INVALID", "no")
        yield

    node.beside(part())
    with pytest.raises(ConfigError):
        await node.start()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = node.listeners

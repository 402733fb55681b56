"""`@node.worker`: a function of the node's program, and the messages of a queue."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from tests.client.test_queues import node_on, settled
from tests.store.servers import StoreServers

from mpreg import connect
from mpreg.client import Message

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct):
    sku: str


async def test_a_worker_gets_the_payload_and_what_it_returns_from_is_done(store_servers: StoreServers) -> None:
    node = node_on(store_servers.url)
    got: list[Order] = []

    @node.worker("orders", topics="order.*", create={"max_retries": 1})
    async def handle(order: Order) -> None:
        got.append(order)
        if order.sku == "bad":
            raise ZeroDivisionError("no")

    async with node, connect(node) as client:
        queue = client.queue("orders")
        assert await queue.create(max_retries=1) in (True, False)
        await queue.send({"sku": "other"}, topic="else")
        for sku in ("tea", "bad"):
            await queue.send({"sku": sku}, topic="order.new", max_retries=0 if sku == "bad" else None)
        stats = await settled(queue, lambda stats: stats.messages_acknowledged + stats.messages_failed == 2)
        assert sorted(order.sku for order in got) == ["bad", "tea"]
        assert (stats.current_queue_size, stats.dead_letters) == (1, 1)
        (dead,) = await client.queue("orders.dlq").peek()
        assert dead.why is not None
        assert dead.why["reason"] == "ZeroDivisionError: no"


async def test_a_sync_worker_runs_in_a_thread_and_may_take_the_message(store_servers: StoreServers) -> None:
    node = node_on(store_servers.url)
    seen: list[tuple[str, bool]] = []

    @node.worker("jobs", create={})
    def handle(message: Message[dict[str, int]]) -> None:
        seen.append((message.topic, threading.current_thread() is threading.main_thread()))

    async with node, connect(node) as client:
        await client.queue("jobs").create()
        await client.queue("jobs").send({"n": 1}, topic="t")
        await settled(client.queue("jobs"), lambda stats: stats.messages_acknowledged == 1)
    assert seen == [("t", False)]


async def test_a_node_that_stops_finishes_what_runs_and_gives_back_the_rest(store_servers: StoreServers) -> None:
    node, other = node_on(store_servers.url, "a"), node_on(store_servers.url, "b")
    began, go = asyncio.Event(), asyncio.Event()
    done: list[int] = []

    @node.worker("jobs", concurrency=1, create={})
    async def handle(number: int) -> None:
        began.set()
        await go.wait()
        done.append(number)

    async with other, connect(other) as client:
        queue = client.queue("jobs")
        await queue.create()
        await queue.send_many(range(3))
        await node.start()
        await began.wait()
        stopping = asyncio.create_task(node.stop())
        stats = await settled(queue, lambda stats: stats.current_queue_size == 2)
        assert stats.current_in_flight_count == 1
        go.set()
        await stopping
        stats = await queue.stats()
        assert (done, stats.messages_acknowledged, stats.current_in_flight_count) == ([0], 1, 0)
        assert [one.retry_count for one in await queue.peek()] == [0, 0]


async def test_a_worker_waits_for_its_queue(store_servers: StoreServers) -> None:
    node = node_on(store_servers.url)
    got = asyncio.Event()

    @node.worker("later")
    async def handle(number: int) -> None:
        got.set()

    async with node, connect(node) as client:
        await client.queue("later").create()
        await client.queue("later").send(1)
        async with asyncio.timeout(20):
            await got.wait()


def test_a_function_that_can_take_no_message_is_refused(store_servers: StoreServers) -> None:
    node = node_on("off")
    with pytest.raises(ValueError, match="one argument"):

        @node.worker("q")
        async def handle(one: int, two: int) -> None: ...

    with pytest.raises(ValueError, match="concurrency"):
        node.worker("q", concurrency=0)(lambda message: None)

"""Topics across the nodes of a cluster: a message crosses to a node once, and only if somebody there wants it."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from tests.cluster.nodes import Nodes, cluster, linked, settings, until

from mpreg.client import Client
from mpreg.node import Node
from mpreg.pubsub import Across, PubSubService

pytestmark = pytest.mark.anyio


def node(name: str, **changes: Any) -> Node:
    return Node(name, settings(**changes))


def pubsub_of(each: Node) -> PubSubService:
    return each._started().services.pubsub


def across_of(each: Node) -> Across:
    across = pubsub_of(each)._across
    assert across is not None
    return across


async def read(messages: Any, count: int) -> list[Any]:
    async with asyncio.timeout(10):
        return [(await anext(messages)).payload for _ in range(count)]


async def clients(nodes: Nodes) -> list[Client]:
    return [await nodes.client(each) for each in nodes.by_name.values()]


async def test_a_subscriber_hears_what_is_published_at_any_node() -> None:
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        at_a, at_b, at_c = await clients(nodes)
        async with at_a.subscribe("news.#") as messages:
            for at, client in enumerate((at_a, at_b, at_c)):
                await client.publish("news.today", at)
                assert await read(messages, 1) == [at]


async def test_from_the_acknowledged_subscription_on_nothing_published_anywhere_is_missed() -> None:
    """However short the time is between the acknowledgement at one node and the publish at another."""
    async with cluster(node("a"), node("b")) as nodes:
        at_a, at_b = await clients(nodes)
        for number in range(50):
            async with at_a.subscribe(f"n{number}.*") as messages:
                await at_b.publish(f"n{number}.x", number)
                assert await read(messages, 1) == [number]


async def test_a_message_crosses_once_however_many_want_it_there_and_not_at_all_if_nobody_does() -> None:
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        at_a, at_b, _ = await clients(nodes)
        many = [await at_b.subscribe(pattern) for pattern in ("x.*", "x.#", "x.y", "#")]
        for number in range(10):
            await at_a.publish("x.y", number)
        for messages in many:
            assert await read(messages, 10) == list(range(10))
        assert pubsub_of(nodes.by_name["a"]).statistics.messages_forwarded == 10
        for messages in many:
            await messages.close()
        await until(lambda: not across_of(nodes.by_name["a"]).elsewhere)
        await at_a.publish("x.y", 10, ack=True)
        assert pubsub_of(nodes.by_name["a"]).statistics.messages_forwarded == 10


async def test_messages_of_one_publisher_come_in_order_whatever_else_crosses() -> None:
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        at_a, at_b, at_c = await clients(nodes)
        everything, one = await at_b.subscribe("#"), await at_c.subscribe("t.1")
        for number in range(300):
            await at_a.publish(f"t.{number % 3}", number)
        assert await read(everything, 300) == list(range(300))
        assert await read(one, 100) == list(range(1, 300, 3))


async def test_the_backlog_is_that_of_the_whole_cluster_oldest_first() -> None:
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        all_clients = await clients(nodes)
        for number, client in zip(range(9), itertools.cycle(all_clients), strict=False):
            await client.publish("past.x", number, ack=True)
        for client in all_clients:
            async with client.subscribe("past.*", backlog=60) as messages:
                got = [await anext(messages) for _ in range(9)]
                assert [message.payload for message in got] == list(range(9))
                assert all(message.backlog for message in got)


async def test_the_seam_between_backlog_and_live_messages_of_other_nodes_has_no_gap_and_no_duplicate() -> None:
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        publishers = (await clients(nodes))[1:]
        subscriber = await nodes.client(nodes.by_name["a"])
        known = await subscriber.subscribe("seam.#")  # the interest is known, so live messages come at any moment
        stop = asyncio.Event()
        sent = [0, 0]

        async def publish(which: int) -> None:
            while not stop.is_set():
                await publishers[which].publish(f"seam.{which}", [which, sent[which]])
                sent[which] += 1
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(publish(which)) for which in (0, 1)]
        late = []
        for _ in range(20):
            await read(known, 20)
            late.append(await subscriber.subscribe("seam.*", backlog=60))
        await read(known, 20)
        stop.set()
        await asyncio.gather(*tasks)
        for messages in late:
            got: list[list[int]] = [[], []]
            for which, number in await read(messages, sum(sent)):
                got[which].append(number)
            assert got == [list(range(sent[0])), list(range(sent[1]))]


async def test_a_backlog_of_many_pages_in_both_encodings_comes_whole() -> None:
    from mpreg.client import connect
    from mpreg.wire.encoding import Encoding

    async with cluster(node("a"), node("b")) as nodes:
        b = nodes.by_name["b"]
        binary = await nodes.client(b)
        async with connect(b.listeners["tcp"], encoding=Encoding.JSON) as text:
            for number in range(60):
                await (binary, text)[number % 7 == 0].publish("big", [number, "x" * 100_000], ack=True)
        subscriber = await nodes.client(nodes.by_name["a"])
        async with subscriber.subscribe("big", backlog=60) as messages:
            assert [number for number, _ in await read(messages, 60)] == list(range(60))
            assert len(across_of(nodes.by_name["a"])) == 0


async def test_what_is_published_again_at_another_node_after_a_lost_acknowledgement_is_delivered_once() -> None:
    from mpreg.wire.pubsub import PubSubAck, PubSubMessage, PubSubPublish

    async with cluster(node("a"), node("b"), node("c")) as nodes:
        at_a, at_b, at_c = await clients(nodes)
        async with at_c.subscribe("once") as messages:
            for client in (at_a, at_b):
                message = PubSubMessage(topic="once", payload=b"\x01", message_id="m1", publisher="p")
                from msgspec import Raw

                message.payload = Raw(b"\x01")
                await client.ask(PubSubPublish(u=client.new_u(), message=message, ack=True), PubSubAck)
            await at_a.publish("once", 2)
            assert await read(messages, 2) == [1, 2]


async def test_a_node_that_comes_later_hears_what_others_want() -> None:
    async with cluster(node("a")) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        async with client.subscribe("later") as messages:
            b = await nodes.start(node("b"))
            await linked(*nodes.by_name.values())
            await until(lambda: bool(across_of(b).elsewhere))
            b.publish("later", "hello")
            assert await read(messages, 1) == ["hello"]


async def test_a_node_that_goes_leaves_nothing_behind() -> None:
    async with cluster(node("a"), node("b")) as nodes:
        a, b = nodes.by_name["a"], nodes.by_name["b"]
        client = await nodes.client(b)
        await client.subscribe("x.#")
        await until(lambda: bool(across_of(a).elsewhere))
        await b.stop(0)
        await until(lambda: not across_of(a).nodes)
        assert not across_of(a).elsewhere
        assert pubsub_of(a)._publishing.forward is None
        assert across_of(a)._forwarding._crossings == {}


async def test_a_subscriber_goes_on_at_another_node_where_it_was() -> None:
    """Positions are by origin: what was missed between two connections comes from every node."""
    from mpreg.client import connect

    async with cluster(node("a"), node("b"), node("c")) as nodes:
        a, b, c = (nodes.by_name[name] for name in "abc")
        publisher = await nodes.client(c)
        urls = [a.listeners["tcp"], b.listeners["tcp"]]
        async with connect(urls) as subscriber, subscriber.subscribe("go.#") as messages:
            await publisher.publish("go.on", 1)
            assert await read(messages, 1) == [1]
            await a.stop(0)
            for number in range(2, 20):
                await publisher.publish("go.on", number)
            assert await read(messages, 18) == list(range(2, 20))

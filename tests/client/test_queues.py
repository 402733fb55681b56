"""Queues as a program uses them, through nodes over a real store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from tests.conformance.raw import Raw
from tests.store.servers import StoreServers

from mpreg import Client, Node, Settings, connect
from mpreg.client.queue import Queue
from mpreg.client.queue_message import Message
from mpreg.errors import QueueError
from mpreg.queues import QueueLimits
from mpreg.wire.encoding import Encoding

pytestmark = pytest.mark.anyio
NAMES = itertools.count()


def node_on(url: str, name: str = "n", **ports: Any) -> Node:
    return Node(name, Settings(store=url, **{"ws": "off", "tcp": "off", **ports}, grace_s=5))


@pytest.fixture
async def client(store_servers: StoreServers) -> AsyncIterator[Client]:
    async with node_on(store_servers.url) as node, connect(node) as opened:
        yield opened


@pytest.fixture
async def queue(client: Client) -> Queue:
    made = client.queue(f"q{next(NAMES)}")
    assert await made.create(max_retries=2)
    return made


async def take(queue: Queue, count: int, **how: Any) -> list[Any]:
    found = []
    async for message in queue.receive(**how):
        async with message:
            found.append(message.payload)
        if len(found) == count:
            break
    return found


async def settled(queue: Queue, condition: Callable[[Any], bool]) -> Any:
    """The statistics as soon as they are like this."""
    async with asyncio.timeout(20):
        while not condition(stats := await queue.stats()):
            await asyncio.sleep(0.02)  # nothing tells when a statistic changes
    return stats


async def test_what_is_sent_is_received_and_acknowledged(queue: Queue) -> None:
    receipt = await queue.send({"sku": "tea"}, topic="order.new", headers={"k": "v"}, priority=3)
    assert (receipt.durability, receipt.duplicate) == ("memory", False)
    async with queue.receive("order.*") as messages:
        async for message in messages:
            assert message.message_id == receipt.message_id
            assert (message.payload, message.topic) == ({"sku": "tea"}, "order.new")
            assert (message.headers, message.priority, message.retry_count) == ({"k": "v"}, 3, 0)
            assert await message.ack() == "acknowledged"
            break
    stats = await queue.stats()
    assert (stats.messages_acknowledged, stats.current_queue_size, stats.current_in_flight_count) == (1, 0, 0)


async def test_sends_of_one_turn_travel_together_and_keep_their_order(client: Client) -> None:
    queue = client.queue(f"q{next(NAMES)}")
    await queue.create("fifo")
    sent = await queue.send_many(range(2500))
    assert not any(isinstance(one, Exception) for one in sent)
    assert await take(queue, 300) == list(range(300))


async def test_each_of_many_learns_its_own_fate(queue: Queue) -> None:
    good, bad, again = queue.send(1, dedup_id="x"), queue.send(2, topic="a..b"), queue.send(3, dedup_id="x")
    first = await good
    with pytest.raises(QueueError) as refused:
        await bad
    assert (refused.value.code, refused.value.details["field"]) == ("QUEUE_INVALID", "topic")
    assert ((await again).message_id, (await again).duplicate) == (first.message_id, True)


async def test_a_payload_without_an_encoding_is_refused_at_once(queue: Queue) -> None:
    with pytest.raises(QueueError, match="can't be encoded"):
        queue.send(object())


async def test_an_exception_means_retry(queue: Queue) -> None:
    await queue.send("poison")
    attempts = []

    async def failing() -> None:
        async for message in queue.receive():
            async with message:
                attempts.append(message.retry_count)
                raise ZeroDivisionError("no")

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await failing()
    assert attempts == [0, 1, 2]
    (dead,) = await Queue(queue._queues, f"{queue.name}.dlq").peek()
    assert dead.payload == "poison"
    assert dead.why is not None
    assert dead.why["reason"] == "ZeroDivisionError: no"
    assert await queue.redrive() == 1
    assert await take(queue, 1) == ["poison"]


async def test_a_loop_that_is_left_by_an_exception_gives_back_what_it_had(queue: Queue) -> None:
    await queue.send_many(range(5))

    async def failing() -> None:
        async for _ in queue.receive(prefetch=5):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    stats = await settled(queue, lambda stats: stats.current_in_flight_count == 0)
    assert stats.current_queue_size == 5
    again = []
    async for message in queue.receive(prefetch=5):
        async with message:
            again.append((message.payload, message.retry_count))
        if len(again) == 5:
            break
    assert again == [(0, 1), (1, 0), (2, 0), (3, 0), (4, 0)]  # what was not looked at was not delivered


async def test_a_handler_that_takes_ten_times_the_visibility_keeps_its_message(queue: Queue) -> None:
    async with queue.receive(visibility=0.6) as one, queue.receive(visibility=0.6) as two:
        waiting = {asyncio.ensure_future(receiver.next()) for receiver in (one, two)}
        await queue.send("slow")
        (got,), (other,) = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        async with got.result():
            await asyncio.sleep(6)  # the work
        assert not other.done()
        other.cancel()
    stats = await queue.stats()
    assert (stats.messages_received, stats.messages_acknowledged) == (1, 1)


async def test_a_message_can_be_retried_later_or_given_up(queue: Queue) -> None:
    await queue.send_many(["later", "never"])
    async with queue.receive() as messages:
        later, never = await messages.next(), await messages.next()
        assert await later.retry(after=0.2) == "retry"
        assert await never.dead_letter("no use") == "dead_letter"
        again = await messages.next()
        assert (again.payload, again.retry_count) == ("later", 1)
        await again.ack()
        with pytest.raises(QueueError) as refused:
            await again.ack()
        assert refused.value.code == "QUEUE_STALE_RECEIPT"


class Order(msgspec.Struct):
    sku: str
    quantity: int = 1


async def test_payloads_have_a_type_and_what_does_not_fit_is_a_dead_letter(queue: Queue) -> None:
    await queue.send({"sku": 7})
    await queue.send(Order("tea", 2))
    assert await take(queue, 1, payload_type=Order) == [Order("tea", 2)]
    stats = await settled(queue, lambda stats: stats.dead_letters == 1)
    (dead,) = await Queue(queue._queues, f"{queue.name}.dlq").peek()
    assert dead.payload == {"sku": 7}
    assert dead.why is not None
    assert "$.sku" in dead.why["reason"]
    assert stats.messages_failed == 1


async def test_work_handles_several_at_a_time_and_finishes_what_it_began(queue: Queue) -> None:
    running, most, done = 0, 0, []
    all_done = asyncio.Event()

    async def handle(message: Message[int]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)  # the work
        running -= 1
        done.append(message.payload)
        if len(done) >= 30:
            all_done.set()

    await queue.send_many(range(60))
    working = asyncio.create_task(queue.work(handle, concurrency=4))
    await all_done.wait()
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
    assert (running, most) == (0, 4)
    stats = await queue.stats()
    assert (stats.messages_acknowledged, stats.current_in_flight_count) == (len(done), 0)
    assert stats.current_queue_size == 60 - len(done)


async def test_a_deleted_queue_ends_the_loop(queue: Queue) -> None:
    async with queue.receive() as messages:
        waiting = asyncio.ensure_future(messages.next())
        await queue.delete()
        with pytest.raises(QueueError) as ended:
            await waiting
    assert ended.value.code == "QUEUE_NOT_FOUND"


async def test_fire_and_forget_and_broadcast_reach_every_receiver(queue: Queue) -> None:
    async with queue.receive(subscriber_id="one") as one, queue.receive("b", subscriber_id="two") as two:
        fired = await queue.send("now", topic="a", guarantee="fire_and_forget")
        assert (fired.durability, fired.delivered_to) == ("none", ("one",))
        message = await one.next()
        assert (message.payload, message.is_settled) == ("now", True)
        told = await queue.send("all", topic="b", guarantee="broadcast")
        assert told.delivered_to == ("one", "two")
        for receiver in (one, two):
            message = await receiver.next()
            assert (message.payload, message.delivery_guarantee) == ("all", "broadcast")
            await message.ack()
    assert (await queue.stats()).current_queue_size == 0


@pytest.mark.parametrize("guarantee", ["quorum", "broadcast"])
async def test_a_sender_waits_until_it_is_decided(store_servers: StoreServers, guarantee: str) -> None:
    node = node_on(store_servers.url)
    node.settings = msgspec.structs.replace(node.settings, queues=QueueLimits(wait_max_s=300))
    async with node, connect(node) as client:
        queue = client.queue(f"q{next(NAMES)}")
        await queue.create()
        async with contextlib.AsyncExitStack() as stack:
            names = ["a", "b", "c"]
            voters = [await stack.enter_async_context(queue.receive(subscriber_id=name)) for name in names]
            sending = asyncio.ensure_future(queue.send_and_wait("vote", wait=300, guarantee=guarantee))
            needed = 2 if guarantee == "quorum" else 3
            for voter in voters[:needed]:
                assert not sending.done()
                await (await voter.next()).ack()
            async with asyncio.timeout(30):  # and not the 300 s
                told = await sending
        assert told.acknowledged_by == tuple(names[:needed])
        assert told.pending_acknowledgments == tuple(names[needed:])
        assert told.quorum_reached is (True if guarantee == "quorum" else msgspec.UNSET)


async def test_queues_are_listed(client: Client, queue: Queue) -> None:
    await queue.send(1)
    found = {one.queue_name: one.current_queue_size async for one in client.queues.names()}
    assert found == {queue.name: 1}
    assert await queue.purge() == 1
    await queue.delete()
    assert [one async for one in client.queues.names()] == []


async def test_json_clients_and_messagepack_clients_share_queues(store_servers: StoreServers) -> None:
    async with (
        node_on(store_servers.url) as node,
        connect(node, encoding=Encoding.JSON) as text,
        connect(node) as binary,
    ):
        name = f"q{next(NAMES)}"
        await text.queue(name).create()
        for sender, receiver in ((text, binary), (binary, text)):
            await sender.queue(name).send({"a": [1, None, "ü"]})
            assert await take(receiver.queue(name), 1) == [{"a": [1, None, "ü"]}]


async def test_several_nodes_serve_one_queue(store_servers: StoreServers) -> None:
    async with (
        node_on(store_servers.url, "a") as a,
        node_on(store_servers.url, "b") as b,
        connect(a) as one,
        connect(b) as two,
    ):
        name = f"q{next(NAMES)}"
        await one.queue(name).create()
        got: list[int] = []
        async with two.queue(name).receive() as messages:
            waiting = asyncio.ensure_future(messages.next())
            await one.queue(name).send(1)
            async with asyncio.timeout(3):  # well before a node would ask of itself
                message = await waiting
            got.append(message.payload)
            await message.ack()
        assert got == [1]


async def test_a_receiver_goes_on_at_another_node(store_servers: StoreServers) -> None:
    """What it had in hand it still acknowledges; its name is its own."""
    first, second = node_on(store_servers.url, "a", tcp=0), node_on(store_servers.url, "b", tcp=0)
    async with second:
        await first.start()
        urls = [first.listeners["tcp"], second.listeners["tcp"]]
        async with connect(urls) as client, connect(second) as other:
            queue = client.queue(f"q{next(NAMES)}")
            await queue.create()
            await queue.send_many([1, 2])
            async with queue.receive(prefetch=1, subscriber_id="me") as messages:
                held = await messages.next()
                await first.stop(0)
                await other.queue(queue.name).send(3)
                assert await held.ack() == "acknowledged"
                for expected in (2, 3):
                    message = await messages.next()
                    assert message.payload == expected
                    await message.ack()
            stats = await queue.stats()
        assert (stats.messages_acknowledged, stats.messages_received) == (3, 3)


async def test_stored_and_forgotten_messages_of_one_turn_are_each_answered(queue: Queue) -> None:
    async with queue.receive(prefetch=10) as messages:
        sent = [
            queue.send("kept"),
            queue.send("fired", guarantee="fire_and_forget"),
            queue.send("wrong", topic="a..b"),
            queue.send("kept too"),
        ]
        told = await asyncio.gather(*sent, return_exceptions=True)
        assert [getattr(one, "durability", None) for one in told] == ["memory", "none", None, "memory"]
        got = [await messages.next() for _ in range(3)]
        assert sorted(message.payload for message in got) == ["fired", "kept", "kept too"]


async def test_a_receiver_that_reads_slowly_is_not_sent_more(store_servers: StoreServers) -> None:
    """What it has not read stays in the store, where another one can get it."""
    node = node_on(store_servers.url, tcp=0)
    async with node, connect(node) as sender:
        queue = sender.queue(f"q{next(NAMES)}")
        await queue.create()
        slow = await asyncio.to_thread(Raw, node.listeners["tcp"], "msgpack", "")
        payload = {"queue_name": queue.name, "subscriber_id": "slow", "prefetch": 1000}
        await asyncio.to_thread(slow.ask, {"type": "subscribe_queue", "u": "s", "payload": payload})
        body = b"x" * 900_000
        await queue.send_many([body] * 60)
        stats = await settled(queue, lambda stats: stats.messages_received >= 1)
        async with queue.receive(payload_type=bytes) as messages:
            async with asyncio.timeout(30):
                message = await messages.next()
            await message.ack()
        stats = await queue.stats()
        assert stats.messages_received < 60
        slow.close()

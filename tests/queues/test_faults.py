"""The store goes away, or is full; nodes and clients in between must say what is known, and go on afterwards."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator

import pytest
from tests.client.test_queues import node_on, settled
from tests.store.servers import Server, StoreServers, valkey

from mpreg import Client, connect
from mpreg.errors import MpregError, QueueError, StoreError
from mpreg.store import Store

pytestmark = pytest.mark.anyio
NAMES = itertools.count()


@pytest.fixture
async def own() -> AsyncIterator[tuple[Server, Client]]:
    """A node over a store of this test alone."""
    with valkey(durability="always") as server:
        async with node_on(server.url) as node, connect(node) as client:
            yield server, client


async def test_a_send_while_the_store_dies_may_or_may_not_be_stored(own: tuple[Server, Client]) -> None:
    server, client = own
    queue = client.queue("q")
    await queue.create()
    await queue.send("before")
    server.signal(signal.SIGSTOP)
    under_way = asyncio.ensure_future(queue.send("?"))
    await asyncio.sleep(0.1)  # it has left for the store, which says nothing
    server.kill()
    with pytest.raises(StoreError) as unknown:
        await under_way
    assert (unknown.value.code, unknown.value.state_changed) == ("STORE_CONNECTION_LOST", None)
    assert unknown.value.retryable
    server.start()
    stats = await settled(queue, lambda stats: True)
    assert stats.messages_sent in (1, 2)  # what was acknowledged is there


async def test_a_send_with_a_dedup_id_is_repeated_until_it_is_stored_once(own: tuple[Server, Client]) -> None:
    server, client = own
    queue = client.queue("q")
    await queue.create()
    server.signal(signal.SIGSTOP)
    under_way = [asyncio.ensure_future(queue.send(n, dedup_id=f"id-{n}")) for n in range(20)]
    await asyncio.sleep(0.1)  # they have left for the store
    server.kill()
    server.start()
    receipts = await asyncio.gather(*under_way)
    assert len({receipt.message_id for receipt in receipts}) == 20
    assert (await queue.stats()).messages_sent == 20


async def test_receivers_go_on_when_the_store_is_back(own: tuple[Server, Client]) -> None:
    server, client = own
    queue = client.queue("q")
    await queue.create()
    async with queue.receive() as messages:
        server.kill()
        server.start()
        waiting = asyncio.ensure_future(messages.next())
        await queue.send("after", dedup_id="x")
        async with asyncio.timeout(30):
            message = await waiting
        assert message.payload == "after"
        assert await message.ack() == "acknowledged"


async def test_a_full_store_refuses_sends_and_still_lets_messages_out(own: tuple[Server, Client]) -> None:
    server, client = own
    queue = client.queue("q")
    await queue.create()
    await queue.send_many(range(100))
    server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.call("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(StoreError) as full:
        await queue.send("too much")
    assert (full.value.code, full.value.retryable) == ("STORE_OUT_OF_MEMORY", True)
    assert full.value.state_changed is False
    got = []
    async for message in queue.receive():
        async with message:
            got.append(message.payload)
        if len(got) == 100:
            break
    server.call("CONFIG", "SET", "maxmemory", "0")
    await queue.send("again")
    stats = await queue.stats()
    assert (stats.messages_sent, stats.messages_acknowledged) == (101, 100)


async def test_a_node_without_a_store_has_no_queues() -> None:
    async with node_on("off") as node, connect(node) as client:
        with pytest.raises(MpregError) as refused:
            await client.queue("q").send(1)
        assert (refused.value.code, refused.value.state_changed) == ("STORE_UNAVAILABLE", False)


async def test_a_queue_that_is_made_again_is_another_one(store_servers: StoreServers, store: Store) -> None:
    """A node that knew the old one notices: other settings, other ids, nothing left of the old."""
    async with (
        node_on(store_servers.url) as one,
        node_on(store_servers.url) as two,
        connect(one) as first,
        connect(two) as second,
    ):
        queue, other = first.queue("again"), second.queue("again")
        await queue.create()
        old = await queue.send("x", dedup_id="x")
        await queue.send(1)
        await other.delete()
        with pytest.raises(QueueError) as gone:
            await queue.send(2)
        assert gone.value.code == "QUEUE_NOT_FOUND"
        await other.create(enable_deduplication=True)
        new = await queue.send("x", dedup_id="x")
        assert not new.duplicate
        assert new.message_id != old.message_id
        assert (await queue.send(1)).message_id == (await queue.send(1)).message_id
        assert (await queue.stats()).messages_sent == 2


async def test_a_queue_that_no_longer_deduplicates_takes_everything(store_servers: StoreServers) -> None:
    async with node_on(store_servers.url) as one, connect(one) as client, connect(one) as other:
        queue = client.queue("changes")
        await queue.create(enable_deduplication=True)
        assert (await queue.send("x")).message_id == (await queue.send("x")).message_id
        await other.queue("changes").delete()
        await other.queue("changes").create()
        receipts = await asyncio.gather(*(queue.send("x") for _ in range(3)))
        assert len({receipt.message_id for receipt in receipts}) == 3
        assert (await queue.stats()).current_queue_size == 3


async def test_nothing_is_left_of_a_deleted_queue(store_servers: StoreServers, store: Store) -> None:
    async with node_on(store_servers.url) as node, connect(node) as client:
        queue = client.queue("gone")
        await queue.create(max_retries=0)
        await queue.send_many(range(10), priority=3, delay=0.01)
        await queue.send("fifth", guarantee="broadcast")
        async for message in queue.receive():
            await message.dead_letter("no")
            break
        await queue.delete()
        assert [key async for page in store.scan() for key in page] == []


async def test_queues_are_made_on_demand_only_where_that_is_set(store_servers: StoreServers) -> None:
    import msgspec

    from mpreg.queues import QueueLimits

    node = node_on(store_servers.url)
    node.settings = msgspec.structs.replace(node.settings, queues=QueueLimits(create_on_demand=True))
    async with node, connect(node) as client:
        queue = client.queue("demand")
        await queue.send(1)
        async for message in queue.receive():
            async with message:
                assert message.payload == 1
            break
        for guarantee in ("fire_and_forget", "broadcast"):
            await client.queue(f"demand-{guarantee}").send(1, guarantee=guarantee)
        async with client.queue("demand-receive").receive():
            pass
        assert len([one async for one in client.queues.names("demand")]) == 4

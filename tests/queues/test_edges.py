"""Where it is easy to be wrong: what is cut, due, full, forged or over. The nodes here look for nothing by themselves,
for their next poll is far off, so what comes was said."""

from __future__ import annotations

import asyncio
import gc
import itertools
import tracemalloc
from typing import Any

import msgspec
import pytest
from tests.client.test_queues import node_on
from tests.queues.test_asking import Calls, lease, turn
from tests.queues.test_parcels import BEGIN
from tests.store.servers import StoreServers

from mpreg import Node, connect
from mpreg.errors import MpregError, QueueError, StoreError
from mpreg.queues import QueueLimits
from mpreg.queues.message import Message
from mpreg.queues.records import Held, Lease, Taker, held_by
from mpreg.queues.settings import DEAD_LETTERS_KEPT_S, RETRIES_MAX, QueueSettings, backoff_ms
from mpreg.queues.settling import SETTLE_MAX, Settling
from mpreg.queues.state import Queue
from mpreg.store import Store
from mpreg.wire.queues import ReceiveMessage, ReceiveMessagePayload, ReceiveMessageReply, Settlement

pytestmark = pytest.mark.anyio
NAMES = itertools.count()


async def made(store: Store, **settings: Any) -> Queue:
    queue = Queue(store, f"review{next(NAMES)}")
    await queue.create(QueueSettings(**settings), at_ms=BEGIN)
    return queue


async def claim(queue: Queue, *takers: Taker, at_ms: int = BEGIN) -> list[tuple[str, bytes, Held]]:
    batch = await queue.claim(takers, at_ms=at_ms)
    return [
        (one.subscriber, payload, held)
        for one in batch.claimed
        for payload, held in zip(one.messages.payloads, one.held, strict=True)
    ]


async def test_a_parcel_that_is_cut_but_not_handed_out_for_its_size_stays_whole(store: Store) -> None:
    """One taker; the 33rd entry would be cut, but 4 MB are full after 32."""
    queue = await made(store, default_visibility_timeout_seconds=10.0)
    large = [Message(payload=b"x" * 200_000, headers={"n": str(n)}) for n in range(32)]
    small = [Message(payload=b"%d" % n) for n in range(100)]
    await queue.send(large, at_ms=BEGIN)
    await queue.send(small, at_ms=BEGIN)
    got = await claim(queue, Taker("me", 72))
    assert len(got) == 32
    await queue.acknowledge([Lease(held, "me") for _, _, held in got], at_ms=BEGIN)
    rest = await claim(queue, Taker("me", 500))
    stats = await queue.statistics(at_ms=BEGIN)
    assert [payload for _, payload, _ in rest] == [b"%d" % n for n in range(100)]
    assert (stats.in_flight, stats.counters["received"]) == (100, 132)


async def test_a_parcel_that_is_cut_but_not_handed_out_does_not_break_the_queue_for_good(store: Store) -> None:
    """When the lease of messages that do not exist ends, every script of the queue fails."""
    queue = await made(store, default_visibility_timeout_seconds=10.0)
    large = [Message(payload=b"x" * 200_000, headers={"n": str(n)}) for n in range(32)]
    await queue.send(large + [Message(payload=b"%d" % n) for n in range(100)], at_ms=BEGIN)
    await claim(queue, Taker("me", 72))
    got = await claim(queue, Taker("me", 500))
    await queue.acknowledge([Lease(held, "me") for _, _, held in got], at_ms=BEGIN)
    await queue.statistics(at_ms=BEGIN + 20_000)


async def test_two_takers_a_parcel_cut_for_the_second_stays_whole(store: Store) -> None:
    """The first one fills the reply; the second one's parcel would be cut and not handed out."""
    queue = await made(store)
    large = [Message(payload=b"x" * 999_000, headers={"n": str(n)}, topic="a") for n in range(5)]
    await queue.send(large + [Message(payload=b"%d" % n, topic="b") for n in range(100)], at_ms=BEGIN)
    got = await claim(queue, Taker("one", 5, ("a",)), Taker("two", 4, ("b",)))
    got += await claim(queue, Taker("one", 5, ("a",)), Taker("two", 200, ("b",)))
    stats = await queue.statistics(at_ms=BEGIN)
    assert (len(got), stats.in_flight) == (105, 105)


async def test_a_queue_without_dead_letters_survives_redrive(store: Store) -> None:
    """A queue of dead letters that never was must not come into being by counting in it."""
    queue = await made(store, enable_dead_letter_queue=False, max_retries=0)
    await queue.redrive(10, at_ms=BEGIN)
    await queue.send([Message(payload=b"1")], at_ms=BEGIN)
    ((_, _, held),) = await claim(queue, Taker("me", 1))
    assert await queue.acknowledge([Lease(held, "me", "dead_letter")], at_ms=BEGIN) == ["dead_letter"]


def patient(url: str) -> Node:
    node = node_on(url)
    node.settings = msgspec.structs.replace(node.settings, queues=QueueLimits(poll_s=300.0))
    return node


async def test_a_message_to_be_retried_comes_when_it_is_due(store_servers: StoreServers) -> None:
    async with patient(store_servers.url) as node, connect(node) as client:
        queue = client.queue(f"due{next(NAMES)}")
        await queue.create()
        async with queue.receive(prefetch=4) as messages:
            await queue.send(1)
            message = await messages.next()
            await message.retry(after=0.3)
            again = await messages.next()
            await again.ack()


async def test_who_was_full_gets_more_though_another_one_had_room(store_servers: StoreServers) -> None:
    """Two subscribers to different topics: one waits for messages that do not come, the other has a backlog."""
    async with patient(store_servers.url) as node, connect(node) as client:
        queue = client.queue(f"full{next(NAMES)}")
        await queue.create()
        async with queue.receive("idle", prefetch=8), queue.receive("busy", prefetch=1) as busy:
            await queue.send_many(range(4), topic="busy")
            for _ in range(4):
                message = await busy.next()
                await message.ack()


async def test_a_subscriber_with_much_room_does_not_starve_the_others(store_servers: StoreServers) -> None:
    async with patient(store_servers.url) as node, connect(node) as client:
        queue = client.queue(f"starve{next(NAMES)}")
        await queue.create()
        async with queue.receive("idle", prefetch=1000), queue.receive("busy", prefetch=4) as busy:
            await queue.send(1, topic="busy")
            message = await busy.next()
            await message.ack()


class Refusing(Calls):
    refuse = False

    def send_acknowledge(self, asked: Any) -> Any:
        if self.refuse:
            raise StoreError("STORE_BUSY", "too much is under way")
        return super().send_acknowledge(asked)


async def test_a_call_that_is_refused_at_once_leaves_nothing_behind() -> None:
    calls = Refusing()
    heard: list[Any] = []
    settling = Settling(calls)  # type: ignore[arg-type]
    calls.refuse = True
    for _ in range(3):
        settling.add([lease(n + 1) for n in range(SETTLE_MAX)], heard.append)
    await turn()
    calls.refuse = False
    settling.add([lease(1)], heard.append)
    for _ in range(6):
        await turn()
        if calls.futures and not calls.futures[-1].done():
            await calls.answer()
    assert len(heard) == 4
    await settling.drained()


async def test_a_flag_as_a_number_does_not_spoil_the_sends_of_others(store_servers: StoreServers) -> None:
    async with patient(store_servers.url) as node, connect(node) as client:
        queue = client.queue(f"shape{next(NAMES)}")
        await queue.create()
        with pytest.raises(MpregError):
            await queue.send(1, priority=False)
        await queue.send(1, priority=0)


async def test_a_delayed_message_comes_when_it_is_due(store_servers: StoreServers) -> None:
    async with patient(store_servers.url) as node, connect(node) as client:
        queue = client.queue(f"delayed{next(NAMES)}")
        await queue.create()
        async with queue.receive(prefetch=4) as messages:
            await queue.send(1)
            await (await messages.next()).ack()
            await queue.send(2, delay=0.3)
            await (await messages.next()).ack()


async def test_a_lease_that_is_ended_early_gives_the_message_to_others(store_servers: StoreServers) -> None:
    async with patient(store_servers.url) as node, connect(node) as client, connect(node) as other:
        queue = client.queue(f"early{next(NAMES)}")
        await queue.create()
        async with queue.receive(prefetch=1) as mine:
            await queue.send(1)
            message = await mine.next()
            await mine.stop_taking()
            async with other.queue(queue.name).receive(prefetch=1) as theirs:
                await mine._extend(0.0, [message])
                assert (await theirs.next()).retry_count == 1


async def test_a_receipt_of_a_queue_that_was_deleted_is_outdated(store: Store) -> None:
    queue = await made(store)
    await queue.send([Message(payload=b"old")], at_ms=BEGIN)
    batch = await queue.claim([Taker("me", 1)], at_ms=BEGIN)
    (message_id,), (held,) = batch.claimed[0].message_ids, batch.claimed[0].held
    await queue.delete(at_ms=BEGIN)
    await queue.create(QueueSettings(), at_ms=BEGIN)
    await queue.send([Message(payload=b"new")], at_ms=BEGIN)
    await queue.claim([Taker("me", 1)], at_ms=BEGIN)
    lease = Lease(held_by(message_id, held.receipt), "me")
    assert await queue.acknowledge([lease], at_ms=BEGIN) == ["stale"]


def test_a_receipt_that_tells_of_many_deliveries_has_a_backoff() -> None:
    held = held_by("msg-abc-0000000001", "0000000001/1/999999999/0")
    assert backoff_ms(held.deliveries, 0.0) == 30_000
    assert backoff_ms(RETRIES_MAX + 1, 0.0) == 30_000


async def test_a_message_in_hand_does_not_keep_all_that_came_with_it(store_servers: StoreServers) -> None:
    async with patient(store_servers.url) as node, connect(node) as client:
        queue = client.queue(f"view{next(NAMES)}")
        await queue.create()
        await queue.send_many(["x" * 10_000] * 400)
        tracemalloc.start()
        try:
            async with queue.receive(prefetch=400) as messages:
                first = await messages.next()
                for _ in range(399):
                    await (await messages.next()).ack()
                gc.collect()
                kept, _ = tracemalloc.get_traced_memory()
                await first.ack()
        finally:
            tracemalloc.stop()
        assert kept < 1_000_000


async def test_a_forged_receipt_is_outdated_whatever_it_says(store_servers: StoreServers) -> None:
    async with patient(store_servers.url) as node, connect(node) as client:
        queue = client.queue(f"forged{next(NAMES)}")
        await queue.create()
        async with queue.receive() as messages:
            forged = Settlement(message_id="m-0000000001", receipt="0000000001/1/999999999/0", success=False)
            with pytest.raises(QueueError, match="not in this program's hands"):
                await messages._settling.add(forged, 0.0)


async def test_dead_letters_whose_time_is_over_stay_dead(store: Store) -> None:
    queue = await made(store)
    await queue.send([Message(payload=b"1")], at_ms=BEGIN)
    ((_, _, held),) = await claim(queue, Taker("me", 1))
    await queue.acknowledge([Lease(held, "me", "dead_letter")], at_ms=BEGIN)
    later = BEGIN + int(DEAD_LETTERS_KEPT_S * 1000) + 1
    assert await queue.redrive(1, at_ms=later) == (0, 0)


async def test_large_messages_among_parcels_come_once_and_so_do_the_parcels(store_servers: StoreServers) -> None:
    """Room changes between the claim that cuts and the next one."""
    async with patient(store_servers.url) as node, connect(node) as client:
        queue = client.queue(f"mixed{next(NAMES)}")
        await queue.create()
        for _ in range(8):
            await queue.send_many(["x" * 200_000] * 33)
            await queue.send_many(range(100))
        got = []
        async with queue.receive(prefetch=72) as messages:
            while len(got) < 8 * 133:
                message = await messages.next()
                got.append(message.payload)
                message.ack()
                await asyncio.sleep(0)
        assert [each for each in got if isinstance(each, int)] == list(range(100)) * 8


async def test_a_pull_gets_what_is_there_though_a_subscriber_has_much_room(store_servers: StoreServers) -> None:
    async with patient(store_servers.url) as node, connect(node) as client:
        queue = client.queue(f"pull{next(NAMES)}")
        await queue.create()
        async with queue.receive("idle", prefetch=1000) as messages:
            await queue.send(1, topic="busy")
            asked = ReceiveMessage(
                payload=ReceiveMessagePayload(queue_name=queue.name, topic_pattern="busy"), u="pull-1"
            )
            reply = await messages._queues.ask(asked, ReceiveMessageReply)
            assert len(reply.payload.messages) == 1

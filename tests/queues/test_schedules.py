"""Recurring sends, through nodes over a real store."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest
from tests.client.test_queues import node_on
from tests.store.servers import StoreServers

from mpreg import connect
from mpreg.errors import QueueError
from mpreg.queues.keys import SCHEDULES
from mpreg.queues.schedules import Schedules
from mpreg.store import Store

pytestmark = pytest.mark.anyio


async def make_due(store: Store, name: str) -> int:
    """As if its time had come; when that was."""
    due_ms = int(time.time() * 1000) - 1000
    await store.command("ZADD", SCHEDULES[0], due_ms, name)
    return due_ms


async def test_a_schedule_is_sent_once_by_several_nodes(store_servers: StoreServers, store: Store) -> None:
    async with (
        node_on(store_servers.url, "a") as a,
        node_on(store_servers.url, "b") as b,
        node_on(store_servers.url, "c"),
        connect(a) as one,
        connect(b) as two,
    ):
        queue = two.queue("reports")
        await queue.create()
        made = await one.schedule("0 3 * * *", "reports", {"kind": "daily"}, name="nightly", topic="report.daily")
        assert made.created
        assert time.gmtime(made.next_at)[3:6] == (3, 0, 0)
        for _ in range(3):
            await make_due(store, "nightly")
            # Whoever looks first sends it; all are made to look.
            for client in (one, two):
                await client.schedule("0 4 * * *", "reports", 0, name=f"other-{client!r}")
            async with queue.receive() as messages:
                async with asyncio.timeout(20):
                    message = await messages.next()
                assert (message.payload, message.topic) == ({"kind": "daily"}, "report.daily")
                assert message.headers["schedule"] == "nightly"
                await message.ack()
        assert (await queue.stats()).messages_sent == 3
        (listed,) = [each for each in await two.queues.schedules() if each["schedule_name"] == "nightly"]
        assert listed["next_at"] == made.next_at
        assert listed["message_payload"] == {"kind": "daily"}
        assert await one.queues.unschedule("nightly")
        assert not await one.queues.unschedule("nightly")


async def test_a_node_that_dies_while_sending_leaves_it_to_another_and_it_is_sent_once(store: Store) -> None:
    sent: list[str | None] = []
    dies = True

    async def send(name: str, message: object, encoding: object) -> object:
        nonlocal dies
        sent.append(getattr(message, "deduplication_id", None))
        if dies:
            dies = False
            raise asyncio.CancelledError  # after the store had it
        return None

    from mpreg.wire.encoding import Encoding
    from mpreg.wire.queues import SchedulePayload

    asked = SchedulePayload(schedule_name="s", cron="@daily", queue_name="q", message_payload=msgspec.Raw(b"1"))
    first, second = (Schedules(store, send) for _ in range(2))  # type: ignore[arg-type]
    await first.put(asked, Encoding.JSON)
    due_ms = await make_due(store, "s")
    with pytest.raises(asyncio.CancelledError):
        await first._look()
    assert await second._look() > 0  # it is taken
    await store.command("ZADD", SCHEDULES[0], due_ms + 1, "s")  # as if that time were over
    await second._look()
    assert sent == [f"s {due_ms}"] * 2
    assert await store.command("HLEN", SCHEDULES[2]) == 0
    assert float(await store.command("ZSCORE", SCHEDULES[0], "s")) > time.time() * 1000


async def test_what_can_not_be_scheduled_is_refused(store_servers: StoreServers) -> None:
    async with node_on(store_servers.url) as node, connect(node) as client:
        for cron, queue, how, field in (
            ("0 3 * *", "q", {}, "cron"),
            ("0 0 30 2 *", "q", {}, "cron"),
            ("@daily", "a{b}", {}, "queue_name"),
            ("@daily", "q", {"timezone": "Mars/Olympus"}, "timezone"),
            ("@daily", "q", {"topic": "a.*"}, "topic"),
            ("@daily", "q", {"name": "a\nb"}, "schedule_name"),
            ("@daily", "q", {"priority": 5000}, "priority"),
        ):
            with pytest.raises(QueueError) as refused:
                await client.schedule(cron, queue, 1, **how)  # type: ignore[arg-type]
            assert (refused.value.code, refused.value.details["field"]) == ("QUEUE_INVALID", field)
        assert await client.queues.schedules() == []

"""Queues through the facade for scripts."""

from __future__ import annotations

from tests.client.test_sync import Served
from tests.store.servers import StoreServers

import mpreg.sync
from mpreg import Settings


def test_queues_from_a_script(store_servers: StoreServers) -> None:
    with (
        Served(Settings(ws="off", tcp=0, store=store_servers.url, grace_s=0)) as served,
        mpreg.sync.connect(served.url) as client,
    ):
        queue = client.queue("sync-orders")
        assert queue.create(max_retries=0)
        assert queue.send({"n": 1}, topic="a").durability == "memory"
        assert len(queue.send_many([2, 3], topic="b")) == 2
        assert [one.payload for one in queue.peek()] == [{"n": 1}, 2, 3]
        got = []
        for message in queue.receive("b"):
            with message:
                got.append((message.payload, message.topic))
            if len(got) == 2:
                break
        assert got == [(2, "b"), (3, "b")]
        for message in queue.receive():
            assert message.dead_letter("no") == "dead_letter"
            break
        assert queue.stats().dead_letters == 1
        assert queue.redrive() == 1
        assert queue.purge() == 1
        assert queue.delete() == 0
        assert client.schedule("@daily", "sync-orders", 1).created

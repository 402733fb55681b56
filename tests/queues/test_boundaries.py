"""Whoever dies between two scripts, consumer or reclaimer, never blocks a queue: time alone gives back what it held."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mpreg.queues.message import Message
from mpreg.queues.records import Lease, Taker
from mpreg.queues.settings import QueueSettings
from mpreg.queues.state import Queue
from mpreg.store import Store

pytestmark = pytest.mark.anyio
NAMES = itertools.count()
BEGIN = 1_000_000_000_000
MINUTE = 60_000


class Killed(BaseException):
    """The process is gone: not even `finally` runs in it."""


class Mortal:
    """A store whose user is killed right after so many scripts."""

    def __init__(self, store: Store, lives: int) -> None:
        self._store = store
        self.lives = lives

    def send_script(self, *args: Any) -> Any:
        if self.lives == 0:
            raise Killed
        self.lives -= 1
        return self._store.send_script(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def a_life(queue: Queue) -> None:
    """Every verb once, as consumer, sender and reclaimer."""
    now = BEGIN
    await queue.subscribe("victim", "owner", "session", 5000, ["#"], at_ms=now)
    await queue.send([Message(payload=b"1"), Message(payload=b"2", group="g")], at_ms=now)
    await queue.send([Message(payload=b"3", delivery_guarantee="broadcast")], at_ms=now)
    batch = await queue.claim([Taker("victim", 2, visibility_ms=1000)], at_ms=now + 1)
    leases = [Lease(held, "victim") for one in batch.claimed for held in one.held]
    await queue.extend(leases[:1], 2000, at_ms=now + 2)
    await queue.renew("session", 5000, ["victim"], at_ms=now + 3)
    await queue.acknowledge(leases[:1], at_ms=now + 4)
    retry = Lease(leases[1].held, "victim", "retry", 500)
    await queue.acknowledge([retry], at_ms=now + 5)
    await queue.settle(at_ms=now + 3000)
    again = (await queue.claim([Taker("victim", 1)], at_ms=now + 3001)).claimed[0]
    give_up = Lease(again.held[0], "victim", "dead_letter", 0, "no")
    await queue.acknowledge([give_up], at_ms=now + 3002)
    await queue.redrive(10, at_ms=now + 3003)
    await queue.fire([("t", b"")], at_ms=now + 3004)
    await queue.claim([Taker("victim", 10)], at_ms=now + 3005)
    await queue.unsubscribe("victim", "session", at_ms=now + 3006)
    raise Killed


async def drained_by_another(queue: Queue, now: int) -> None:
    """Everything that was sent is acknowledged, a dead letter or expired."""
    for step in range(20):
        at_ms = now + step * MINUTE
        batch = await queue.claim([Taker("heir", 10)], at_ms=at_ms)
        leases = [Lease(held, "heir") for one in batch.claimed for held in one.held]
        if leases:
            assert set(await queue.acknowledge(leases, at_ms=at_ms + 1)) == {"acknowledged"}
    stats = await queue.statistics(at_ms=now + 21 * MINUTE)
    assert (stats.ready, stats.delayed, stats.in_flight) == (0, 0, 0)
    ended = sum(stats.counters[name] for name in ("acknowledged", "failed", "expired", "purged"))
    assert stats.counters["units"] == ended
    (sent,) = await queue.send([Message(payload=b"new", group="g")], at_ms=now + 22 * MINUTE)
    (got,) = (await queue.claim([Taker("heir", 1)], at_ms=now + 22 * MINUTE)).claimed
    assert got.messages.payloads == [b"new"], sent


@pytest.mark.parametrize("queue_type", ["priority", "fifo", "delay"])
async def test_whoever_dies_at_any_boundary_blocks_nobody(store: Store, queue_type: Any) -> None:
    boundaries = 0
    while True:
        name = f"boundary{next(NAMES)}"
        heir = Queue(store, name)
        await heir.create(QueueSettings(queue_type=queue_type, default_acknowledgment_timeout_seconds=30))
        mortal = Mortal(store, boundaries)
        with pytest.raises(Killed):
            await a_life(Queue(mortal, name))  # type: ignore[arg-type]
        await drained_by_another(heir, BEGIN + 10 * MINUTE)
        await heir.delete()
        if mortal.lives:
            break  # it lived to its end
        boundaries += 1
    assert boundaries > 12

"""Locks of a real cluster and behind real sentinels whose primary is replaced while many want them: fences only grow.

A replica may not have heard of a lock when it takes over, so two may hold it for a moment; that is what fences are for.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tests.store.servers import cluster, sentinel

from mpreg.errors import StoreError
from mpreg.store import Store, StoreLimits, connect
from mpreg.store.lock import Lock
from mpreg.store.slots import slot_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
LIMITS = StoreLimits(down_wait_s=20.0, topology_s=0.5, backoff_min_s=0.01, backoff_max_s=0.1)
NAME = "the-lock"
TTL_S = 2.0


class Contenders:
    """Tasks with a store each, as if they were processes; the order in which they heard of their fences is kept."""

    def __init__(self) -> None:
        self.fences: list[int] = []
        self.stopping = False
        self.progress = asyncio.Condition()

    async def run(self, url: str) -> None:
        async with await connect(url, limits=LIMITS) as store:
            while not self.stopping:
                await self._once(store)

    async def _once(self, store: Store) -> None:
        try:
            held = await Lock(store, NAME, ttl_s=TTL_S).acquire(wait_s=20)
        except StoreError as error:
            if not error.retryable:
                raise
            return
        self.fences.append(held.fence)
        async with self.progress:
            self.progress.notify_all()
        try:
            await held.release()
        except StoreError as error:
            if not error.retryable:
                raise

    async def advance(self, count: int = 50) -> None:
        goal = len(self.fences) + count
        async with self.progress:
            await self.progress.wait_for(lambda: len(self.fences) >= goal)

    def check(self) -> None:
        assert all(one < next for one, next in itertools.pairwise(self.fences))


@pytest.mark.parametrize("way", ["orderly", "killed"])
async def test_a_primary_of_a_cluster_is_replaced(way: str) -> None:
    with cluster(primaries=3, replicas=1) as nodes:
        slot = slot_of(NAME.encode())
        contenders = Contenders()
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(contenders.run(nodes.url))
            await contenders.advance()
            if way == "orderly":
                await asyncio.to_thread(nodes.fail_over, slot)
            else:
                nodes.owner(slot).kill()
            await contenders.advance()
            contenders.stopping = True
        contenders.check()


async def test_a_slot_moves_away_from_under_a_lock() -> None:
    with cluster(primaries=3, replicas=0) as nodes:
        slot = slot_of(NAME.encode())
        contenders = Contenders()
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(contenders.run(nodes.url))
            for _ in range(3):
                await contenders.advance()
                owner = nodes.owner(slot)
                await asyncio.to_thread(nodes.move_slot, slot, next(n for n in nodes.primaries if n is not owner))
            await contenders.advance()
            contenders.stopping = True
        contenders.check()


@pytest.mark.parametrize("way", ["orderly", "killed"])
async def test_a_primary_behind_sentinels_is_replaced(way: str) -> None:
    with sentinel(replicas=1, sentinels=3) as watched:
        contenders = Contenders()
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(contenders.run(watched.url))
            await contenders.advance()
            if way == "orderly":
                await asyncio.to_thread(watched.fail_over)
            else:
                watched.primary().kill()
            await contenders.advance()
            contenders.stopping = True
        contenders.check()

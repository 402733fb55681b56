"""The queues that this node serves at the moment, by name."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from mpreg.errors import MpregError, QueueError, ResourceError, StoreError
from mpreg.queues.answers import Tasks
from mpreg.queues.desk import Desk
from mpreg.queues.limits import QueueLimits
from mpreg.queues.settings import QueueSettings
from mpreg.queues.state import Queue

if TYPE_CHECKING:
    from mpreg.store import Store

T = TypeVar("T")


class Desks:
    def __init__(self, store: Store | None, limits: QueueLimits, tasks: Tasks) -> None:
        self._store = store
        self._limits = limits
        self._tasks = tasks
        self._desks: dict[str, Desk] = {}
        self.draining = False

    def __len__(self) -> int:
        return len(self._desks)

    def __iter__(self) -> Iterator[Desk]:
        return iter(list(self._desks.values()))

    def at(self, name: str) -> Desk:
        desk = self._desks.get(name)
        if desk is None:
            self._make_room()
            desk = self._desks[name] = Desk(self.store(), name, self._limits, self._tasks.own)
            if self.draining:
                desk.delivery.stop()
        return desk

    def store(self) -> Store:
        if self._store is None:
            raise StoreError("STORE_UNAVAILABLE", "this node runs without a store, and queues live in one")
        return self._store

    def queue(self, name: str) -> Queue:
        return Queue(self.store(), name)

    def drain(self) -> None:
        self.draining = True
        for desk in self:
            desk.delivery.stop()

    # On demand.

    def may_create(self, error: MpregError) -> bool:
        return self._limits.create_on_demand and error.code == "QUEUE_NOT_FOUND"

    async def create(self, queue: Queue) -> None:
        with contextlib.suppress(QueueError):  # somebody else has made it meanwhile, as it wanted it
            await queue.create(QueueSettings())

    async def or_create(self, queue: Queue, use: Callable[[], Awaitable[T]]) -> T:
        try:
            return await use()
        except QueueError as error:
            if not self.may_create(error):
                raise
        await self.create(queue)
        return await use()

    def _make_room(self) -> None:
        most = self._limits.desks_max
        if len(self._desks) >= most:
            for known in [each for each, one in self._desks.items() if one.is_idle]:
                del self._desks[known]
        if len(self._desks) >= most:
            raise ResourceError("RESOURCE_EXHAUSTED", f"this node serves {most} queues at the moment", limit=most)

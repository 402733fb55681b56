"""Queues as a node offers them. The store owns their state (`state.py`); a node only carries, so any number of nodes
may serve one queue, and any of them may die.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mpreg.queues import whole
from mpreg.queues.acknowledgements import Acknowledgements
from mpreg.queues.answers import Handler, Tasks
from mpreg.queues.desks import Desks
from mpreg.queues.durability import durability_of
from mpreg.queues.limits import QueueLimits
from mpreg.queues.receiving import Receiving
from mpreg.queues.requests import settings_in
from mpreg.queues.schedules import Schedules
from mpreg.queues.sends import Sends
from mpreg.queues.state import Queue
from mpreg.transport.session import Session
from mpreg.wire.encoding import Encoding
from mpreg.wire.message import Message, TypeMessage
from mpreg.wire.queues import (
    AcknowledgeMessage,
    AcknowledgeMessages,
    CreateQueue,
    CreateQueueReply,
    DeleteQueue,
    DeleteSchedule,
    DeleteScheduleReply,
    ExtendVisibilities,
    ExtendVisibility,
    ListedSchedules,
    ListQueues,
    ListSchedules,
    ListSchedulesReply,
    Peek,
    PurgeQueue,
    QueueCreated,
    QueueStatistics,
    ReceiveMessage,
    Redrive,
    ScheduleDeleted,
    ScheduleMessage,
    ScheduleMessageReply,
    SendMessage,
    SendMessages,
    SubscribeQueue,
    UnsubscribeQueue,
)

if TYPE_CHECKING:
    from mpreg.store import Store


class QueueService:
    def __init__(self, node_id: str, store: Store | None, limits: QueueLimits) -> None:
        """`node_id` names this run of this node. Without a store every request is refused."""
        self._store = store
        self._tasks = Tasks(limits.running_max)
        self._desks = Desks(store, limits, self._tasks)
        self._sends = Sends(self._desks, self._tasks, limits)
        self._acknowledgements = Acknowledgements(self._desks)
        self._receiving = Receiving(node_id, self._desks, self._tasks, limits)
        self._schedules = None if store is None else Schedules(store, self._sends.send)
        self._running: list[asyncio.Task[None]] = []
        self.send = self._sends.send
        """For the node's own parts: as `send_message`."""
        self.closed: Callable[[Session], None] = self._receiving.closed
        """A connection is gone."""

    @property
    def handlers(self) -> dict[type[Message], Handler]:
        """For the node's dispatch."""
        beside = self._tasks.handler
        return {
            SendMessage: self._sends.send_message,
            SendMessages: self._sends.send_messages,
            AcknowledgeMessage: self._acknowledgements.acknowledge_message,
            AcknowledgeMessages: self._acknowledgements.acknowledge_messages,
            ExtendVisibility: beside(self._acknowledgements.extend_visibility),
            ExtendVisibilities: beside(self._acknowledgements.extend_visibilities),
            SubscribeQueue: beside(self._receiving.subscribe_queue),
            UnsubscribeQueue: beside(self._receiving.unsubscribe_queue),
            ReceiveMessage: beside(self._receiving.receive_message),
            CreateQueue: beside(self._create_queue),
            DeleteQueue: beside(self._of_queue, whole.delete),
            PurgeQueue: beside(self._of_queue, whole.purge),
            Redrive: beside(self._of_queue, whole.redrive),
            Peek: beside(self._of_queue, whole.peek),
            QueueStatistics: beside(self._of_queue, whole.statistics),
            ListQueues: beside(self._list_queues),
            ScheduleMessage: beside(self._schedule_message),
            DeleteSchedule: beside(self._delete_schedule),
            ListSchedules: beside(self._list_schedules),
        }

    async def start(self) -> None:
        if self._store is not None:
            self._sends.durability = await durability_of(self._store)
            for name, work in (("subscribers", self._receiving.renew_all()), ("schedules", self._scheduled().run())):
                self._running.append(asyncio.create_task(work, name=f"mpreg-queue-{name}"))

    async def _create_queue(self, session: Session, request: CreateQueue, encoding: Encoding) -> None:
        settings = settings_in(request.payload)
        queue = self._desks.queue(request.payload.queue_name)
        payload = QueueCreated(queue.name, await queue.create(settings))
        session.send(CreateQueueReply(payload=payload, u=request.u), encoding)

    async def _list_queues(self, session: Session, request: ListQueues, encoding: Encoding) -> None:
        session.send(await whole.listed(self._desks.store(), request), encoding)

    async def _of_queue(
        self,
        session: Session,
        request: Any,
        encoding: Encoding,
        ask: Callable[[Queue, Any, Encoding], Awaitable[TypeMessage]],
    ) -> None:
        session.send(await ask(self._desks.queue(request.payload.queue_name), request, encoding), encoding)

    # Recurring sends.

    def _scheduled(self) -> Schedules:
        self._desks.store()
        assert self._schedules is not None
        return self._schedules

    async def _schedule_message(self, session: Session, request: ScheduleMessage, encoding: Encoding) -> None:
        payload = await self._scheduled().put(request.payload, encoding)
        session.send(ScheduleMessageReply(payload=payload, u=request.u), encoding)

    async def _delete_schedule(self, session: Session, request: DeleteSchedule, encoding: Encoding) -> None:
        name = request.payload.schedule_name
        payload = ScheduleDeleted(name, await self._scheduled().delete(name))
        session.send(DeleteScheduleReply(payload=payload, u=request.u), encoding)

    async def _list_schedules(self, session: Session, request: ListSchedules, encoding: Encoding) -> None:
        payload = ListedSchedules(*await self._scheduled().page(request.payload.after, encoding))
        session.send(ListSchedulesReply(payload=payload, u=request.u), encoding)

    def report(self) -> dict[str, Any]:
        return {
            "queues_served": len(self._desks),
            "subscriptions": sum(len(desk.subscriptions) for desk in self._desks),
            "unsent_messages": sum(len(desk.sending) for desk in self._desks),
            "unsettled_messages": sum(len(desk.settling) for desk in self._desks),
            "running_requests": len(self._tasks),
        }

    async def drain(self, grace_s: float) -> None:
        """Take nothing more from the store; what is on its way there arrives."""
        self._desks.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                for desk in self._desks:
                    await desk.sending.drained()
                    await desk.settling.drained()

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        for desk in self._desks:
            await desk.close()
        await self._tasks.close()

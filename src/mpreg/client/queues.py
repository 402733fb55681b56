"""All queues of a client: which receiver what is pushed belongs to, and what must go on after a lost connection."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, TypeVar

from msgspec import UNSET

from mpreg.client.exchange import Exchange
from mpreg.client.queue import Queue
from mpreg.client.queue_message import decode_payload, encode_payload
from mpreg.client.queue_receiving import Receiving
from mpreg.client.queue_sending import QueueSending
from mpreg.errors import MpregError
from mpreg.wire.encoding import Encoding
from mpreg.wire.message import Message as WireMessage
from mpreg.wire.queues import (
    DeleteSchedule,
    DeleteScheduleReply,
    ListedQueue,
    ListQueues,
    ListQueuesPayload,
    ListQueuesReply,
    ListSchedules,
    ListSchedulesPayload,
    ListSchedulesReply,
    MessageDelivered,
    MessagesPendingAck,
    QueueSubscriptionEnded,
    Scheduled,
    ScheduleMessage,
    ScheduleMessageReply,
    ScheduleName,
    SchedulePayload,
)

log = logging.getLogger(__name__)

M = TypeVar("M", bound=WireMessage)


class Asking(Protocol):
    """The part of the client that is used here."""

    def new_u(self) -> str: ...

    async def ask(self, message: WireMessage, reply_type: type[M], *, timeout: float | None = None) -> M: ...


class Queues:
    def __init__(self, client: Asking, exchange: Exchange, encoding: Encoding, timeout_s: float) -> None:
        self.new_u = client.new_u
        self.ask = client.ask
        self.encoding = encoding
        self.token = secrets.token_hex(4)
        self.sending = QueueSending(exchange, client.new_u, encoding, timeout_s)
        self._receivers: dict[tuple[str, str], Receiving[Any]] = {}
        exchange.handlers[MessagesPendingAck] = self._delivered
        exchange.handlers[MessageDelivered] = self._fired
        exchange.handlers[QueueSubscriptionEnded] = self._ended

    def queue(self, name: str) -> Queue:
        return Queue(self, name)

    async def names(self, prefix: str = "") -> AsyncIterator[ListedQueue]:
        """All queues, page by page."""
        after = ""
        while True:
            payload = ListQueuesPayload(prefix=prefix, after=after)
            page = (await self.ask(ListQueues(payload=payload, u=self.new_u()), ListQueuesReply)).payload
            for one in page.queues:
                yield one
            if not page.more or not page.queues:
                return
            after = page.queues[-1].queue_name

    # Recurring sends.

    async def schedule(
        self,
        cron: str,
        queue: str,
        payload: Any,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        topic: str = "message",
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> Scheduled:
        asked = SchedulePayload(
            schedule_name=name or f"{queue} {cron}",
            cron=cron,
            queue_name=queue,
            message_payload=encode_payload(payload, self.encoding),
            timezone=timezone,
            topic=topic,
            priority=priority,
            headers=dict(headers or {}),
        )
        reply = await self.ask(ScheduleMessage(payload=asked, u=self.new_u()), ScheduleMessageReply)
        return reply.payload

    async def unschedule(self, name: str) -> bool:
        asked = DeleteSchedule(payload=ScheduleName(name), u=self.new_u())
        return (await self.ask(asked, DeleteScheduleReply)).payload.deleted

    async def schedules(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            asked = ListSchedules(payload=ListSchedulesPayload(after), u=self.new_u())
            page = (await self.ask(asked, ListSchedulesReply)).payload
            for one in page.schedules:
                fields = {field: getattr(one, field) for field in one.__struct_fields__}
                fields["message_payload"] = decode_payload(one.message_payload, self.encoding, Any)
                found.append({field: value for field, value in fields.items() if value is not UNSET})
            if not page.more or not page.schedules:
                return found
            after = page.schedules[-1].schedule_name

    # Receivers.

    def add(self, receiver: Receiving[Any]) -> None:
        key = (receiver.queue_name, receiver.subscriber_id)
        if key in self._receivers:
            raise ValueError(f"this client receives from {receiver.queue_name!r} as {receiver.subscriber_id!r} already")
        self._receivers[key] = receiver

    def remove(self, receiver: Receiving[Any]) -> None:
        self._receivers.pop((receiver.queue_name, receiver.subscriber_id), None)

    async def reconnected(self) -> None:
        for receiver in list(self._receivers.values()):
            try:
                await receiver.reconnected()
            except MpregError as error:
                log.warning("%r: %s", receiver, error)

    async def close(self) -> None:
        self.sending.flush()
        for receiver in list(self._receivers.values()):
            await receiver.close()

    def _delivered(self, message: MessagesPendingAck, encoding: Encoding) -> None:
        payload = message.payload
        receiver = self._receivers.get((payload.queue_name, payload.subscriber_id))
        if receiver is not None:
            receiver.take(payload.messages, encoding)

    def _fired(self, message: MessageDelivered, encoding: Encoding) -> None:
        payload = message.payload
        if payload.queue_name is not UNSET and payload.subscriber_id is not UNSET:
            receiver = self._receivers.get((payload.queue_name, payload.subscriber_id))
            if receiver is not None:
                receiver.take([payload], encoding)

    def _ended(self, message: QueueSubscriptionEnded, encoding: Encoding) -> None:
        payload = message.payload
        receiver = self._receivers.get((payload.queue_name, payload.subscriber_id))
        if receiver is not None:
            receiver.ended(payload)

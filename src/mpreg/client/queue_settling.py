"""What a program says of its messages: all of one turn of the event loop in one frame, each answered for itself."""

from __future__ import annotations

import asyncio
from asyncio import Future
from typing import TYPE_CHECKING, Final

import msgspec

from mpreg.errors import MpregError, QueueError
from mpreg.wire.queues import (
    MANY_MAX,
    AcknowledgeMessages,
    AcknowledgeMessagesPayload,
    AcknowledgeMessagesReply,
    Settlement,
)

if TYPE_CHECKING:
    from mpreg.client.queues import Queues

AGAIN_S: Final = 0.1


class _Entry(msgspec.Struct, gc=False):
    settlement: Settlement
    future: Future[str]
    until: float
    """When the lease ends, as far as is known here."""
    was_lost: bool = False
    """An attempt was not answered: nobody knows whether it counted."""


class Settling:
    def __init__(self, queues: Queues, queue_name: str, subscriber_id: str) -> None:
        self._queues = queues
        self._queue_name = queue_name
        self._subscriber_id = subscriber_id
        self._loop = asyncio.get_running_loop()
        self._turn: list[_Entry] = []
        self._under_way: set[asyncio.Task[None]] = set()

    def add(self, settlement: Settlement, until: float) -> Future[str]:
        """The outcome. It is on its way even if nobody awaits it."""
        future: Future[str] = self._loop.create_future()
        self._add(_Entry(settlement, future, until))
        return future

    async def drained(self) -> None:
        while self._turn or self._under_way:
            self._flush()
            await asyncio.wait(self._under_way)

    def _add(self, entry: _Entry) -> None:
        if not self._turn:
            self._loop.call_soon(self._flush)
        self._turn.append(entry)

    def _flush(self) -> None:
        turn, self._turn = self._turn, []
        for at in range(0, len(turn), MANY_MAX):
            task = self._loop.create_task(self._send(turn[at : at + MANY_MAX]))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _send(self, entries: list[_Entry]) -> None:
        messages = [entry.settlement for entry in entries]
        payload = AcknowledgeMessagesPayload(self._queue_name, self._subscriber_id, messages)
        asked = AcknowledgeMessages(payload=payload, u=self._queues.new_u())
        try:
            reply = await self._queues.ask(asked, AcknowledgeMessagesReply)
        except MpregError as error:
            await self._failed(entries, error)
            return
        for entry, outcome in zip(entries, reply.payload.outcomes, strict=True):
            if entry.future.done():
                continue
            if outcome == "stale":
                entry.future.set_exception(_stale(entry))
            else:
                entry.future.set_result(outcome)

    async def _failed(self, entries: list[_Entry], error: MpregError) -> None:
        """Once more while the lease may hold: a second acknowledgement does no harm."""
        now = self._loop.time()
        repeats = [entry for entry in entries if error.retryable and entry.until > now + AGAIN_S]
        for entry in entries:
            if entry not in repeats and not entry.future.done():
                copy = error.__class__(error.code, error.message, state_changed=error.state_changed, **error.details)
                entry.future.set_exception(copy)
        if repeats:
            await asyncio.sleep(AGAIN_S)
            for entry in repeats:
                entry.was_lost = entry.was_lost or error.state_changed is None
                self._add(entry)


def _stale(entry: _Entry) -> QueueError:
    message_id = entry.settlement.message_id
    return QueueError(
        "QUEUE_STALE_RECEIPT",
        f"the message {message_id!r} is not in this program's hands any more",
        message_id=message_id,
        state_changed=None if entry.was_lost else False,
    )

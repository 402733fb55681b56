"""Requests to send: checked here, stored by `sending.py`, answered when the store has the message (R-Q4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from mpreg.errors import MpregError
from mpreg.queues.answers import Tasks, check_many, refuse
from mpreg.queues.desk import Desk
from mpreg.queues.desks import Desks
from mpreg.queues.limits import QueueLimits
from mpreg.queues.names import invalid
from mpreg.queues.pushing import Fired
from mpreg.queues.records import Cast, Packed, Sent
from mpreg.queues.requests import Packer, is_kept
from mpreg.queues.sending import Answers
from mpreg.queues.settings import seconds
from mpreg.transport.session import Session
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import error_body
from mpreg.wire.queues import (
    MessageSent,
    MessagesSent,
    Outgoing,
    SendMessage,
    SendMessageReply,
    SendMessages,
    SendMessagesReply,
    SendResult,
)

_encode_fired: Final = msgspec.msgpack.Encoder().encode


class Sends:
    def __init__(self, desks: Desks, tasks: Tasks, limits: QueueLimits) -> None:
        self.durability = "unknown"
        self._desks = desks
        self._tasks = tasks
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._packer = Packer()

    def send_message(self, session: Session, request: SendMessage, encoding: Encoding) -> None:
        asked = request.payload
        if asked.wait_seconds:
            seconds("wait_seconds", asked.wait_seconds, 0, self._limits.wait_max_s)
            self._tasks.handler(self._send_and_wait)(session, request, encoding)
            return
        desk = self._desks.at(asked.queue_name)
        packed = self._packer.pack(asked, encoding)
        if not is_kept(asked.delivery_guarantee):
            self._tasks.handler(self._fire_one)(session, request, encoding)
            return

        def answer(result: Answers | MpregError) -> None:
            one = result if isinstance(result, MpregError) else result[0]
            if isinstance(one, MpregError):
                if self._desks.may_create(one):
                    self._tasks.handler(self._send_again)(session, request, encoding)
                else:
                    refuse(session, one, request, encoding)
            else:
                session.send(SendMessageReply(payload=self._sent(desk, one), u=request.u), encoding)

        desk.sending.add([asked], [packed], answer)

    def send_messages(self, session: Session, request: SendMessages, encoding: Encoding) -> None:
        asked = request.payload.messages
        check_many(asked)
        desk = self._desks.at(request.payload.queue_name)
        results: list[SendResult | None] = [None] * len(asked)
        places, kept, packed = self._pack_many(asked, encoding, results)
        fired = [] if len(places) == len(asked) else [n for n, one in enumerate(asked) if _is_fired(one, results[n])]
        parts = bool(kept) + bool(fired)

        def part_is_done() -> None:
            nonlocal parts
            parts -= 1
            if parts <= 0:
                told = [one for one in results if one is not None]
                payload = MessagesSent(desk.queue.name, self.durability, told)
                session.send(SendMessagesReply(payload=payload, u=request.u), encoding)

        def stored(result: Answers | MpregError) -> None:
            if isinstance(result, MpregError) and not fired and self._desks.may_create(result):
                self._tasks.handler(self._send_many_again)(session, request, encoding)
                return
            for at, place in enumerate(places):
                results[place] = _result_of(result if isinstance(result, MpregError) else result[at])
            part_is_done()

        if kept:
            desk.sending.add(kept, packed, stored)
        if fired:
            self._tasks.spawn(self._fire_many(desk, asked, fired, results, encoding, part_is_done))
        elif not kept:
            part_is_done()

    def _pack_many(
        self, asked: Sequence[Outgoing], encoding: Encoding, results: list[SendResult | None]
    ) -> tuple[list[int], list[Outgoing], list[Packed]]:
        """Where in the request those stand that go to the store; why others don't is in `results`."""
        places: list[int] = []
        kept: list[Outgoing] = []
        packed: list[Packed] = []
        pack = self._packer.pack
        for place, one in enumerate(asked):
            try:
                each = pack(one, encoding)
            except MpregError as error:
                results[place] = _result_of(error)
                continue
            if is_kept(one.delivery_guarantee):
                places.append(place)
                kept.append(one)
                packed.append(each)
        return places, kept, packed

    async def _fire_one(self, session: Session, request: SendMessage, encoding: Encoding) -> None:
        desk = self._desks.at(request.payload.queue_name)
        sent = (await self._fire(desk, [request.payload], encoding))[0]
        session.send(SendMessageReply(payload=self._sent(desk, sent, durability="none"), u=request.u), encoding)

    async def _fire_many(
        self,
        desk: Desk,
        asked: Sequence[Outgoing],
        places: list[int],
        results: list[SendResult | None],
        encoding: Encoding,
        done: Callable[[], None],
    ) -> None:
        """Those of many that nobody keeps."""
        try:
            sent = await self._fire(desk, [asked[n] for n in places], encoding)
        except MpregError as error:
            for place in places:
                results[place] = _result_of(error)
        else:
            for place, one in zip(places, sent, strict=True):
                results[place] = msgspec.structs.replace(_result_of(one), durability="none")
        done()

    async def _fire(self, desk: Desk, asked: Sequence[Outgoing], encoding: Encoding) -> list[Sent]:
        now = time.time()
        said = [
            (
                one.topic,
                _encode_fired(
                    Fired(one.topic, encoding.value, one.priority, now, one.headers, bytes(one.message_payload))
                ),
            )
            for one in asked
        ]
        return await self._desks.or_create(desk.queue, lambda: desk.queue.fire(said))

    async def _send_and_wait(self, session: Session, request: SendMessage, encoding: Encoding) -> None:
        """A broadcast or quorum whose sender wants to know how it ends."""
        asked = request.payload
        if asked.delivery_guarantee not in ("broadcast", "quorum"):
            raise invalid("wait_seconds", f"nobody can wait for {asked.delivery_guarantee!r:.60}")
        desk = self._desks.at(asked.queue_name)
        packed = self._packer.pack(asked, encoding)
        desk.casting.enter()
        try:
            await desk.listen()
            stored = await self._store_one(desk, asked, packed)
            ends = stored.subscribers and not stored.duplicate
            stands = await desk.casting.outcome(stored.message_id, asked.wait_seconds) if ends else None
        finally:
            desk.casting.leave()
            desk.stop_listening()
        session.send(SendMessageReply(payload=self._sent(desk, stored, stands), u=request.u), encoding)

    async def _send_again(self, session: Session, request: SendMessage, encoding: Encoding) -> None:
        await self._desks.create(self._desks.at(request.payload.queue_name).queue)
        self.send_message(session, request, encoding)

    async def _send_many_again(self, session: Session, request: SendMessages, encoding: Encoding) -> None:
        await self._desks.create(self._desks.at(request.payload.queue_name).queue)
        self.send_messages(session, request, encoding)

    def _sent(self, desk: Desk, sent: Sent, stands: Cast | None = None, *, durability: str = "") -> MessageSent:
        return MessageSent(
            queue_name=desk.queue.name,
            message_id=sent.message_id,
            durability=durability or self.durability,
            duplicate=sent.duplicate,
            delivered_to=UNSET if sent.subscribers is None else sent.subscribers,
            acknowledged_by=UNSET if stands is None else stands.acknowledged,
            pending_acknowledgments=UNSET if stands is None else stands.pending,
            required_acknowledgments=UNSET if stands is None or not stands.required else stands.required,
            quorum_reached=UNSET if stands is None or not stands.required else stands.reached,
        )

    async def send(self, name: str, message: Outgoing, encoding: Encoding) -> Sent:
        """For the node itself. Raises why it was not stored, or that nobody knows."""
        desk = self._desks.at(name)
        return await self._store_one(desk, message, self._packer.pack(message, encoding))

    async def _store_one(self, desk: Desk, asked: Outgoing, packed: Packed) -> Sent:
        sent: asyncio.Future[Sent] = self._loop.create_future()
        desk.sending.add([asked], [packed], lambda result: _set(sent, result))
        return await sent


def _result_of(sent: Sent | MpregError) -> SendResult:
    if isinstance(sent, MpregError):
        return SendResult(error=error_body(sent))
    names = UNSET if sent.subscribers is None else sent.subscribers
    return SendResult(message_id=sent.message_id, duplicate=sent.duplicate, delivered_to=names)


def _is_fired(asked: Outgoing, refused: SendResult | None) -> bool:
    return refused is None and not is_kept(asked.delivery_guarantee)


def _set(sent: asyncio.Future[Sent], result: Answers | MpregError) -> None:
    one = result if isinstance(result, MpregError) else result[0]
    if sent.done():
        return
    if isinstance(one, MpregError):
        sent.set_exception(one)
    else:
        sent.set_result(one)

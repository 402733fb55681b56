"""Requests that say what becomes of messages in a subscriber's hands (R-Q3)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final, cast

from msgspec import UNSET

from mpreg.errors import MpregError
from mpreg.queues.answers import check_many, refuse, stale
from mpreg.queues.consumer import Subscription
from mpreg.queues.desk import Desk
from mpreg.queues.desks import Desks
from mpreg.queues.names import invalid
from mpreg.queues.records import Held, Lease, Outcome, held_by
from mpreg.queues.settings import LEASE_MAX_S, backoff_ms, milliseconds, seconds
from mpreg.transport.session import Session
from mpreg.wire.encoding import Encoding
from mpreg.wire.queues import (
    Acknowledged,
    AcknowledgeMessage,
    AcknowledgeMessageReply,
    AcknowledgeMessages,
    AcknowledgeMessagesReply,
    Extended,
    ExtendedMany,
    ExtendVisibilities,
    ExtendVisibilitiesReply,
    ExtendVisibility,
    ExtendVisibilityReply,
    Outcomes,
    Settlement,
)

REASON_MAX: Final = 1_000


class Acknowledgements:
    def __init__(self, desks: Desks) -> None:
        self._desks = desks

    def acknowledge_message(self, session: Session, request: AcknowledgeMessage, encoding: Encoding) -> None:
        asked = request.payload
        desk = self._desks.at(asked.queue_name)
        mine = self._mine(session, desk, asked.subscriber_id)
        leases = _leases(mine, asked.subscriber_id, [asked])

        def answer(result: list[Outcome] | MpregError) -> None:
            if isinstance(result, MpregError):
                refuse(session, result, request, encoding)
            elif result[0] == "stale":
                refuse(session, stale(asked.message_id), request, encoding)
            else:
                reply = AcknowledgeMessageReply(payload=Acknowledged(asked.message_id, result[0]), u=request.u)
                session.send(reply, encoding)

        desk.settling.add(leases, answer)
        if mine is not None:
            desk.delivery.has_room(mine)

    def acknowledge_messages(self, session: Session, request: AcknowledgeMessages, encoding: Encoding) -> None:
        asked = request.payload
        check_many(asked.messages)
        desk = self._desks.at(asked.queue_name)
        mine = self._mine(session, desk, asked.subscriber_id)
        leases = _leases(mine, asked.subscriber_id, asked.messages)

        def answer(result: list[Outcome] | MpregError) -> None:
            if isinstance(result, MpregError):
                refuse(session, result, request, encoding)
            else:
                session.send(AcknowledgeMessagesReply(payload=Outcomes(cast(list[str], result)), u=request.u), encoding)

        desk.settling.add(leases, answer)
        if mine is not None:
            desk.delivery.has_room(mine)

    @staticmethod
    def _mine(session: Session, desk: Desk, subscriber_id: str) -> Subscription | None:
        subscription = desk.subscriptions.get(subscriber_id)
        return subscription if subscription is not None and subscription.session is session else None

    async def extend_visibility(self, session: Session, request: ExtendVisibility, encoding: Encoding) -> None:
        asked = request.payload
        ends = await self._extend(
            session,
            asked.queue_name,
            asked.subscriber_id,
            asked.visibility_timeout_seconds,
            [(asked.message_id, asked.receipt)],
        )
        if not ends[0]:
            raise stale(asked.message_id)
        session.send(ExtendVisibilityReply(payload=Extended(asked.message_id, ends[0] / 1000), u=request.u), encoding)

    async def extend_visibilities(self, session: Session, request: ExtendVisibilities, encoding: Encoding) -> None:
        asked = request.payload
        check_many(asked.messages)
        ends = await self._extend(
            session,
            asked.queue_name,
            asked.subscriber_id,
            asked.visibility_timeout_seconds,
            [(each.message_id, each.receipt) for each in asked.messages],
        )
        session.send(ExtendVisibilitiesReply(payload=ExtendedMany([e / 1000 for e in ends]), u=request.u), encoding)

    async def _extend(
        self, session: Session, name: str, subscriber_id: str, by_s: float, messages: Iterable[tuple[str, str]]
    ) -> list[int]:
        seconds("visibility_timeout_seconds", by_s, 0, LEASE_MAX_S)
        desk = self._desks.at(name)
        mine = self._mine(session, desk, subscriber_id)
        asked = list(messages)
        leases = [Lease(_held(mine, message_id, receipt), subscriber_id) for message_id, receipt in asked]
        ends = await desk.queue.extend(leases, milliseconds(by_s))
        for (message_id, _), end in zip(asked, ends, strict=True):
            if mine is not None and end:
                mine.extended(message_id, by_s)
        return ends


def _leases(mine: Subscription | None, subscriber_id: str, asked: Sequence[Settlement]) -> list[Lease]:
    """What is said of messages, and as many less with their subscription."""
    leases = [_lease(mine, subscriber_id, each) for each in asked]
    if mine is not None:
        for each in asked:
            mine.settled(each.message_id, each.receipt)
    return leases


def _lease(mine: Subscription | None, subscriber_id: str, asked: Settlement) -> Lease:
    _check(asked)
    held = _held(mine, asked.message_id, asked.receipt)
    if asked.success:
        return Lease(held, subscriber_id)
    if asked.dead_letter:
        return Lease(held, subscriber_id, "dead_letter", 0, asked.reason or "given up")
    if asked.release:
        return Lease(held, subscriber_id, "release")
    if asked.retry_after_seconds is UNSET:
        delay_ms = backoff_ms(held.deliveries, random.random())
    else:
        delay_ms = milliseconds(asked.retry_after_seconds)
    return Lease(held, subscriber_id, "retry", delay_ms, asked.reason or "not acknowledged")


def _check(asked: Settlement) -> None:
    if asked.dead_letter and asked.release:
        raise invalid("release", "a message is given up or given back, not both")
    if asked.success and (asked.dead_letter or asked.release):
        raise invalid("success", "is false for a message that is given up or given back")
    if asked.retry_after_seconds is not UNSET:
        seconds("retry_after_seconds", asked.retry_after_seconds, 0, LEASE_MAX_S)
    if len(asked.reason) > REASON_MAX:
        raise invalid("reason", f"has over {REASON_MAX} characters", limit=REASON_MAX)


def _held(mine: Subscription | None, message_id: str, receipt: str) -> Held:
    """Who was not handed a message by this very connection has to show a receipt."""
    held = mine.held.get(message_id) if mine is not None else None
    if held is not None and receipt in ("", held.receipt):
        return held
    return held_by(message_id, receipt)

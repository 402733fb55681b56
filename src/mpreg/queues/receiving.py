"""Requests to receive: subscriptions of connections, and pulls. A subscriber is known to the store by a lease that its
node renews, so that broadcasts are kept for it, and for nobody who is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from mpreg.errors import MpregError, QueueError, ResourceError, StoreError
from mpreg.queues.answers import Tasks
from mpreg.queues.consumer import Pull, Subscription
from mpreg.queues.desk import Desk
from mpreg.queues.desks import Desks
from mpreg.queues.limits import QueueLimits
from mpreg.queues.names import check_pattern, check_text
from mpreg.queues.pushing import deliveries_of, push_of
from mpreg.queues.records import Cast, Claimed, Lease
from mpreg.queues.requests import patterns_in
from mpreg.queues.settings import LEASE_MAX_S, milliseconds, number, seconds
from mpreg.queues.settling import unheard
from mpreg.queues.state import CLAIM_MAX
from mpreg.transport.session import Session
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import error_body
from mpreg.wire.queues import (
    Deliveries,
    MessagesPendingAck,
    QueueSubscriptionEnded,
    Received,
    ReceiveMessage,
    ReceiveMessageReply,
    SubscribeQueue,
    SubscribeQueueReply,
    Subscriber,
    SubscriptionEnded,
    UnsubscribeQueue,
    UnsubscribeQueueReply,
)

log = logging.getLogger(__name__)

RENEWALS_A_LEASE: Final = 3


class Receiving:
    def __init__(self, node_id: str, desks: Desks, tasks: Tasks, limits: QueueLimits) -> None:
        """`node_id` names this run of this node: together with a session it owns what is subscribed there."""
        self._node_id = node_id
        self._desks = desks
        self._tasks = tasks
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._by_session: dict[Session, dict[tuple[str, str], Subscription]] = {}

    async def subscribe_queue(self, session: Session, request: SubscribeQueue, encoding: Encoding) -> None:
        asked = request.payload
        limits = self._limits
        patterns = patterns_in(asked)
        check_text(asked.subscriber_id, "subscriber_id")
        if asked.owner:
            check_text(asked.owner, "owner")
        prefetch = limits.prefetch_default if asked.prefetch is UNSET else asked.prefetch
        number("prefetch", prefetch, 1, limits.prefetch_max)
        number("in_flight", asked.in_flight, 0, limits.prefetch_max)
        seconds("visibility_timeout_seconds", asked.visibility_timeout_seconds, 0, LEASE_MAX_S)
        mine = self._by_session.get(session, {})
        if len(mine) >= limits.subscriptions_per_connection_max:
            most = limits.subscriptions_per_connection_max
            raise ResourceError("RESOURCE_EXHAUSTED", f"{most} subscriptions by one connection", limit=most)
        desk = self._desks.at(asked.queue_name)
        by = f"{self._node_id}/{session.id}"
        subscription = Subscription(
            asked.subscriber_id,
            session,
            encoding,
            patterns,
            prefetch=prefetch,
            visibility_ms=milliseconds(asked.visibility_timeout_seconds),
            auto_acknowledge=asked.auto_acknowledge,
            batch=asked.batch,
            in_flight=asked.in_flight,
            owner=asked.owner or by,
            by=by,
            push=lambda *what: self._push(desk, *what),
            ended=lambda one, error: self._ended(desk, one, error),
        )
        known = desk.subscriptions.get(asked.subscriber_id)
        if known is not None and known.owner != (asked.owner or by):
            raise desk.queue.in_use(asked.subscriber_id)
        try:
            await desk.listen()
            await self._register(desk, subscription)
        except BaseException:
            desk.stop_listening()
            raise
        if session.closed:
            desk.stop_listening()
            await self._unregister(desk, subscription)
            return
        known = desk.subscriptions.get(asked.subscriber_id)
        if known is not None:
            self._remove(desk, known)  # its owner has come by another connection, or anew
        self._by_session.setdefault(session, {})[(desk.queue.name, asked.subscriber_id)] = subscription
        reply = SubscribeQueueReply(payload=Subscriber(desk.queue.name, asked.subscriber_id), u=request.u)
        session.send(reply, encoding)
        desk.add(subscription)

    async def unsubscribe_queue(self, session: Session, request: UnsubscribeQueue, encoding: Encoding) -> None:
        asked = request.payload
        desk = self._desks.at(asked.queue_name)
        subscription = self._by_session.get(session, {}).get((asked.queue_name, asked.subscriber_id))
        if subscription is None:
            raise QueueError(
                "QUEUE_NOT_FOUND",
                f"this connection has no subscriber {asked.subscriber_id!r:.100} of {asked.queue_name!r}",
                field="subscriber_id",
            )
        self._remove(desk, subscription)
        await self._unregister(desk, subscription)
        session.send(UnsubscribeQueueReply(payload=asked, u=request.u), encoding)

    async def receive_message(self, session: Session, request: ReceiveMessage, encoding: Encoding) -> None:
        asked = request.payload
        number("max_messages", asked.max_messages, 1, CLAIM_MAX)
        seconds("wait_seconds", asked.wait_seconds, 0, self._limits.wait_max_s)
        seconds("visibility_timeout_seconds", asked.visibility_timeout_seconds, 0, LEASE_MAX_S)
        if asked.subscriber_id:
            check_text(asked.subscriber_id, "subscriber_id")
        patterns = (check_pattern(asked.topic_pattern),)
        desk = self._desks.at(asked.queue_name)
        done: asyncio.Future[None] = self._loop.create_future()

        def answer(claimed: Sequence[Claimed], casts: dict[str, Cast], now_ms: int) -> None:
            messages, failed = deliveries_of(desk.queue.name, claimed, casts, now_ms, encoding)
            self._give_up(desk, failed)
            session.send(ReceiveMessageReply(payload=Received(messages), u=request.u), encoding)
            if not done.done():
                done.set_result(None)

        def fail(error: MpregError) -> None:
            if not done.done():
                done.set_exception(error)

        pull = Pull(
            asked.subscriber_id,
            session,
            patterns,
            most=asked.max_messages,
            visibility_ms=milliseconds(asked.visibility_timeout_seconds),
            answer=answer,
            fail=fail,
        )
        if self._desks.draining:
            answer((), {}, 0)
            return
        listens = asked.wait_seconds > 0
        try:
            if listens:
                await desk.listen()
                pull.patience = self._loop.call_later(asked.wait_seconds, self._too_late, desk, pull)
            desk.add(pull)
            await done
        finally:
            desk.remove(pull)
            if pull.patience is not None:
                pull.patience.cancel()
            if listens:
                desk.stop_listening()

    def _too_late(self, desk: Desk, pull: Pull) -> None:
        desk.remove(pull)
        pull.end(None)

    def _push(
        self, desk: Desk, one: Subscription, claimed: Sequence[Claimed], casts: dict[str, Cast], now_ms: int
    ) -> None:
        messages, failed = deliveries_of(desk.queue.name, claimed, casts, now_ms, one.encoding)
        for message_id, lease in failed:
            one.settled(message_id, lease.held.receipt)
        self._give_up(desk, failed)
        if one.batch:
            payload = Deliveries(desk.queue.name, one.subscriber_id, messages)
            if messages:
                one.session.send(MessagesPendingAck(payload=payload), one.encoding)
        else:
            for message in messages:
                one.session.send(push_of(message), one.encoding)
        if one.auto_acknowledge:
            lost = {lease.held.receipt for _, lease in failed}
            heard = [held for each in claimed for held in each.held if held.receipt not in lost]
            desk.settling.add([Lease(held, one.subscriber_id) for held in heard], unheard)

    def _give_up(self, desk: Desk, failed: Sequence[tuple[str, Lease]]) -> None:
        if failed:
            desk.settling.add([lease for _, lease in failed], unheard)

    # Subscribers in the store, so that broadcasts are kept for them.

    async def _register(self, desk: Desk, one: Subscription) -> None:
        lease_ms = milliseconds(self._limits.subscriber_lease_s)
        await self._desks.or_create(
            desk.queue,
            lambda: desk.queue.subscribe(one.subscriber_id, one.owner, one.by, lease_ms, one.patterns),
        )

    async def _unregister(self, desk: Desk, one: Subscription) -> None:
        await desk.queue.unsubscribe(one.subscriber_id, one.by)

    async def renew_all(self) -> None:
        while True:
            await asyncio.sleep(self._limits.subscriber_lease_s / RENEWALS_A_LEASE)
            for desk in self._desks:
                by: dict[str, list[str]] = {}
                for one in desk.subscriptions.values():
                    by.setdefault(one.by, []).append(one.subscriber_id)
                for session, names in by.items():
                    try:
                        await self._renew(desk, session, names)
                    except StoreError as error:
                        log.debug("Subscribers of %r can't be renewed: %s", desk.queue, error)
                    except QueueError as error:
                        desk.deleted(error)

    async def _renew(self, desk: Desk, by: str, names: list[str]) -> None:
        for name in await desk.queue.renew(by, milliseconds(self._limits.subscriber_lease_s), names):
            one = desk.subscriptions.get(name)
            if one is None or one.by != by:
                continue
            try:
                await self._register(desk, one)  # the store may have forgotten it
            except QueueError as error:
                if error.code != "QUEUE_EXISTS":
                    raise
                self._remove(desk, one)
                one.end(error)

    def _remove(self, desk: Desk, one: Subscription) -> None:
        """From this node."""
        mine = self._by_session.get(one.session, {})
        if mine.pop((desk.queue.name, one.subscriber_id), None) is not None and not mine:
            del self._by_session[one.session]
        if desk.remove(one):
            desk.stop_listening()

    def _ended(self, desk: Desk, one: Subscription, error: MpregError) -> None:
        """Its queue is deleted, or its name has been taken over."""
        mine = self._by_session.get(one.session, {})
        if mine.pop((desk.queue.name, one.subscriber_id), None) is not None:
            desk.stop_listening()
            if not mine:
                del self._by_session[one.session]
        ended = SubscriptionEnded(desk.queue.name, one.subscriber_id, error_body(error))
        with contextlib.suppress(MpregError):
            one.session.send(QueueSubscriptionEnded(payload=ended), one.encoding)

    def closed(self, session: Session) -> None:
        """The connection is gone. What it holds is its subscriber's until the leases end."""
        for (name, _), one in list(self._by_session.pop(session, {}).items()):
            desk = self._desks.at(name)
            if desk.remove(one):
                desk.stop_listening()
            if one.owner == one.by:  # nobody can come back as this one
                self._tasks.spawn(self._leave(desk, one))

    async def _leave(self, desk: Desk, one: Subscription) -> None:
        with contextlib.suppress(MpregError):  # its lease as a subscriber runs out
            await self._unregister(desk, one)

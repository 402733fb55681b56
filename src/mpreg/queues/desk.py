"""One queue as this node serves it: what goes to the store, what comes from it, and what the store says of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mpreg.errors import MpregError, StoreError
from mpreg.queues.casting import CAST, Casting
from mpreg.queues.consumer import Consumer, Subscription
from mpreg.queues.delivery import Delivery
from mpreg.queues.limits import QueueLimits
from mpreg.queues.listening import Listening
from mpreg.queues.pushing import FIRED, Fired, fired_delivery
from mpreg.queues.sending import Sending
from mpreg.queues.settling import Settling
from mpreg.queues.state import Queue

if TYPE_CHECKING:
    from mpreg.store import Store

log = logging.getLogger(__name__)


class Desk:
    def __init__(
        self, store: Store, name: str, limits: QueueLimits, ending: Callable[[asyncio.Task[None]], None]
    ) -> None:
        self.queue = Queue(store, name)
        self.sending = Sending(self.queue, limits.unsent_messages_max, limits.unsent_bytes_max)
        self.settling = Settling(self.queue)
        self.delivery = Delivery(self.queue, self.settling, limits.poll_s, self.deleted)
        self.casting = Casting(self.queue)
        self.subscriptions: dict[str, Subscription] = {}
        self._listening = Listening(store, self.queue.channel, self._heard, self.delivery.wake)
        self._listeners = 0
        self._ending = ending

    @property
    def is_idle(self) -> bool:
        return not (self._listeners or self.delivery.consumers or len(self.sending) or len(self.settling))

    async def listen(self) -> None:
        """Each is followed by one `stop_listening`, even if it fails."""
        self._listeners += 1
        await self._listening.begin()

    def stop_listening(self) -> None:
        self._listeners -= 1
        if not self._listeners:
            task = self._listening.end()
            if task is not None:
                self._ending(task)

    def add(self, consumer: Consumer) -> None:
        if isinstance(consumer, Subscription):
            self.subscriptions[consumer.subscriber_id] = consumer
        self.delivery.add(consumer)

    def remove(self, consumer: Consumer) -> bool:
        """Whether it was there."""
        if consumer not in self.delivery.consumers:
            return False
        self.delivery.remove(consumer)
        if self.subscriptions.get(consumer.subscriber_id) is consumer:
            del self.subscriptions[consumer.subscriber_id]
        return True

    async def close(self) -> None:
        await self.delivery.close()
        self.casting.fail(StoreError("STORE_CLOSED", "the node stops"))
        task = self._listening.end()
        if task is not None:
            await asyncio.wait([task])

    def deleted(self, error: MpregError) -> None:
        """There is no such queue any more: whoever waits learns it."""
        self.subscriptions.clear()
        self.delivery.end_all(error)
        self.casting.fail(error)

    def _heard(self, data: bytes) -> None:
        if data == b"ready":
            self.delivery.wake()
        elif data == b"deleted":
            self.deleted(self.queue.not_found())
        elif data[:1] == FIRED:
            self._fired(data[1:])
        elif data[:1] == CAST:
            self.casting.heard(data[1:])

    def _fired(self, data: bytes) -> None:
        unpacker = msgspec.msgpack.Decoder(tuple[str, list[str], Fired])
        message_id, names, fired = unpacker.decode(b"\x93" + data[1:])
        for name in names:
            subscription = self.subscriptions.get(name)
            if subscription is not None:
                try:
                    push = fired_delivery(self.queue.name, message_id, name, names, fired, subscription.encoding)
                    subscription.session.send(push, subscription.encoding)
                except MpregError as error:
                    log.debug("A message is lost: %s", error)

"""Topics as a program uses them: publish, subscribe, ask a question and get an answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

from mpreg.client.exchange import Exchange
from mpreg.client.publishing import Publishing
from mpreg.client.subscription import BUFFER_MAX, Callback, OnFull, OnSlow, Subscription
from mpreg.errors import MpregError, ResourceError, TimedOut
from mpreg.pubsub.patterns import parse_pattern
from mpreg.wire.encoding import Encoding
from mpreg.wire.message import Message as WireMessage
from mpreg.wire.pubsub import PubSubAck, PubSubNotification, PubSubSubscribe, PubSubUnsubscribe
from mpreg.wire.received import Message

log = logging.getLogger(__name__)

M = TypeVar("M", bound=WireMessage)

QUERIES_MAX: Final = 10_000
"""Questions that wait for their answer."""
AGAIN_S: Final = 1.0
"""After a subscribe that may succeed later, on the same connection."""
_PASSING: Final = frozenset({"TRANSPORT_CONNECTION_LOST", "TRANSPORT_CLOSED", "RESOURCE_SHUTTING_DOWN"})
"""The connection ends, and after the next one there is another attempt."""


class Asking(Protocol):
    """The part of the client that is used here."""

    def new_u(self) -> str: ...

    async def ask(self, message: WireMessage, reply_type: type[M], *, timeout: float | None = None) -> M: ...

    def tell(self, message: WireMessage) -> None: ...


class PubSub:
    def __init__(self, client: Asking, exchange: Exchange, encoding: Encoding, timeout_s: float) -> None:
        self._client = client
        self._exchange = exchange
        self._timeout_s = timeout_s
        self._token = secrets.token_hex(6)
        self._next = itertools.count(1).__next__
        self._publishing = Publishing(exchange, client.new_u, self._token, encoding)
        self._heard: dict[str, Subscription[Any]] = {}
        """By the id of this connection."""
        self._kept: dict[Subscription[Any], None] = {}
        """Those that begin again after a reconnect."""
        self._answers: asyncio.Task[Subscription[Any]] | None = None
        self._queries: dict[str, asyncio.Future[Message[Any]]] = {}
        exchange.handlers[PubSubNotification] = self._notified

    async def publish(
        self,
        topic: str,
        payload: Any,
        headers: Mapping[str, Any] | None = None,
        reply_to: str | None = None,
        ack: bool = False,
        timeout: float | None = None,
    ) -> None:
        if ack:
            timeout_s = self._timeout_s if timeout is None else timeout
            await self._publishing.publish_surely(topic, payload, headers, reply_to, timeout_s)
        else:
            await self._publishing.publish(topic, payload, headers, reply_to)

    def subscribe(
        self,
        patterns: tuple[str, ...],
        *,
        exact: bool = False,
        backlog: float | None = None,
        payload_type: Any = Any,
        callback: Callback[Any] | None = None,
        buffer: int = BUFFER_MAX,
        on_full: OnFull = "drop_oldest",
        on_slow: OnSlow = "disconnect",
    ) -> Subscription[Any]:
        for pattern in patterns:
            parse_pattern(pattern, exact=exact)
        if not patterns or buffer < 1 or (backlog is not None and not backlog >= 0):
            raise ValueError("a subscription has a pattern, a buffer of 1 or more, and a backlog of 0 seconds or more")
        return Subscription(
            self,
            patterns,
            exact=exact,
            backlog_s=backlog,
            payload_type=payload_type,
            callback=callback,
            buffer_max=buffer,
            on_full=on_full,
            on_slow=on_slow,
        )

    async def query(
        self, topic: str, payload: Any, headers: Mapping[str, Any] | None, timeout: float | None
    ) -> Message[Any]:
        """The first answer to a message."""
        timeout_s = self._timeout_s if timeout is None else timeout
        if len(self._queries) >= QUERIES_MAX:
            raise ResourceError("RESOURCE_EXHAUSTED", f"{QUERIES_MAX} questions wait for answers", limit=QUERIES_MAX)
        self._publishing.check(topic)
        here = f"_reply.{self._token}"
        reply_to = f"{here}.{self._next()}"
        future: asyncio.Future[Message[Any]] = asyncio.get_running_loop().create_future()
        self._queries[reply_to] = future
        try:
            async with asyncio.timeout(timeout_s):
                await self._hear_answers(f"{here}.*")
                await self._publishing.publish(topic, payload, headers, reply_to)
                return await future
        except TimeoutError:
            raise TimedOut(
                "TIMEOUT_EXCEEDED",
                f"Nobody answered at {topic[:80]!r} within {timeout_s:g} s",
                timeout_ms=timeout_s * 1e3,
                state_changed=None,
            ) from None
        finally:
            del self._queries[reply_to]

    async def reply(self, message: Message[Any], payload: Any, headers: Mapping[str, Any] | None) -> None:
        if message.reply_to is None:
            raise ValueError("the message asks for no answer")
        await self._publishing.publish(message.reply_to, payload, headers, None)

    async def _hear_answers(self, pattern: str) -> None:
        """One subscription for all questions, begun by the first."""
        if self._answers is None or (self._answers.done() and self._answers.result().error is not None):
            answers = self.subscribe((pattern,), callback=self._answered)
            self._answers = asyncio.create_task(answers.begun(), name="mpreg-answers")
        begun = self._answers
        try:
            await asyncio.shield(begun)
        except BaseException:
            if self._answers is begun and begun.done():
                self._answers = None
            raise

    # For subscriptions.

    async def begin(self, subscription: Subscription[Any]) -> None:
        self._heard.pop(subscription.wire_id, None)
        wire_id = f"{self._token}-{self._next()}"
        request = PubSubSubscribe(subscription=subscription.request(wire_id), u=self._client.new_u(), ack=True)
        self._heard[wire_id] = subscription
        try:
            subscription.acknowledged(await self._client.ask(request, PubSubAck))
        except BaseException as error:
            known = self._heard.pop(wire_id, None)
            if known is not None and isinstance(error, asyncio.CancelledError | TimedOut):
                self._unsubscribe(wire_id)  # the node may have it
            raise
        if not subscription.is_closed:
            self._kept[subscription] = None

    def finish(self, subscription: Subscription[Any]) -> None:
        self._kept.pop(subscription, None)
        if self._heard.pop(subscription.wire_id, None) is not None:
            self._unsubscribe(subscription.wire_id)

    # What the connection tells.

    async def reconnected(self) -> None:
        """All subscriptions again, each from where it was."""
        await asyncio.gather(*map(self._begin_again, list(self._kept)))

    async def _begin_again(self, subscription: Subscription[Any]) -> None:
        while not subscription.is_closed:
            try:
                await self.begin(subscription)
            except MpregError as error:
                if error.code in _PASSING or subscription.is_closed:
                    return
                if not error.retryable:
                    log.warning("%s can't go on: %s", subscription, error)
                    self._kept.pop(subscription, None)
                    subscription.fail(error)
                    return
                log.warning("%s does not go on yet: %s", subscription, error)
            else:
                return
            await asyncio.sleep(AGAIN_S)

    async def close(self) -> None:
        self._publishing.flush()
        if self._answers is not None and not self._answers.done():
            self._answers.cancel()
            await asyncio.wait([self._answers])
        for subscription in {*self._kept, *self._heard.values()}:
            await subscription.close()

    def _notified(self, notification: PubSubNotification, encoding: Encoding) -> None:
        subscription = self._heard.get(notification.subscription_id)
        if subscription is not None:
            subscription.take(notification, encoding)

    def _unsubscribe(self, wire_id: str) -> None:
        with contextlib.suppress(MpregError):  # without a connection it has ended already
            self._client.tell(PubSubUnsubscribe(subscription_id=wire_id))

    def _answered(self, message: Message[Any]) -> None:
        future = self._queries.get(message.topic)
        if future is not None and not future.done():
            future.set_result(message)

"""The subscriber's half of the client: a stream of messages, with a bounded buffer, kept across reconnects.

When the buffer is full, the policy decides: `drop_oldest` leaves out the oldest messages and counts them, `fail`
ends the stream with `PUBSUB_BUFFER_FULL` after what is buffered. Neither holds up the connection, on which answers
come too.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeVar

from msgspec import UNSET, UnsetType

from mpreg.errors import MpregError, PubSubError
from mpreg.wire.encoding import Encoding
from mpreg.wire.pubsub import PubSubAck, PubSubNotification, PubSubPattern, PubSubSubscription
from mpreg.wire.received import Message, as_list, decoder, mark_backlog

log = logging.getLogger(__name__)

T = TypeVar("T")

BUFFER_MAX: Final = 65_536
ORIGINS_MAX: Final = 1_024
"""Runs of nodes whose positions are remembered; the first heard of go first."""
OnFull = Literal["drop_oldest", "fail"]
OnSlow = Literal["disconnect", "drop_oldest"]
Callback = Callable[[Message[T]], Awaitable[None] | None]


class Subscriptions(Protocol):
    """What a subscription asks of the client."""

    async def begin(self, subscription: Subscription[Any]) -> None:
        """Subscribe at the node, for the first time or again after a reconnect."""

    def finish(self, subscription: Subscription[Any]) -> None: ...


class Subscription(Generic[T]):
    """Made by `Client.subscribe`; begins with `async with` or `await`.

    Iterating it gives messages one by one, `batches` as they come. `close` ends the iteration.
    """

    def __init__(
        self,
        owner: Subscriptions,
        patterns: tuple[str, ...],
        *,
        exact: bool,
        backlog_s: float | None,
        payload_type: Any,
        callback: Callback[T] | None,
        buffer_max: int,
        on_full: OnFull,
        on_slow: OnSlow,
    ) -> None:
        self.patterns = patterns
        self.dropped = 0
        """Messages left out because the buffer was full."""
        self.invalid = 0
        """Messages left out because their payload is not of the type that was asked for."""
        self.failed = 0
        """Messages whose callback raised; its log says what."""
        self.gaps = 0
        """Reconnects after which the node's backlog did not reach back to what was missed."""
        self.wire_id = ""
        """At the node; another one after each reconnect."""
        self.is_begun = False
        self.is_closed = False
        self._owner = owner
        self._exact = exact
        self._backlog_s = backlog_s
        self._type = payload_type
        self._buffer_max = buffer_max
        self._on_full = on_full
        self._on_slow = on_slow
        self._positions: dict[str, int] = {}
        self._asked_at: float | None = None
        self._decoders = {encoding: decoder(payload_type, encoding) for encoding in Encoding}
        self._buffer: deque[Message[T]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.error: MpregError | None = None
        """Why it can't go on, if so; the iteration raises it."""
        self._callback: Callback[T] | None = None
        self._task: asyncio.Task[None] | None = None
        self._awaited = callback
        if callback is not None and not _is_async(callback):
            self._callback, self._awaited = callback, None

    # For the program.

    async def __aenter__(self) -> Self:
        return await self.begun()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.begun().__await__()

    async def begun(self) -> Self:
        """Begin, unless it has."""
        if self.is_closed:
            raise PubSubError("PUBSUB_INVALID_SUBSCRIPTION", f"{self} is closed; make another one")
        if self.is_begun:
            return self
        await self._owner.begin(self)
        self.is_begun = True
        if self._awaited is not None:
            self._task = asyncio.create_task(self._call(self._awaited), name="mpreg-subscription")
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        buffer = self._buffer
        while not buffer:
            await self._wait()
        return buffer.popleft()

    async def batches(self) -> AsyncIterator[list[Message[T]]]:
        """All that has come since the last one, in order; the fastest way to read."""
        while True:
            try:
                found = await self.batch()
            except StopAsyncIteration:
                return
            yield found

    async def batch(self) -> list[Message[T]]:
        """All that has come, at least one message. Raises `StopAsyncIteration` when none will come."""
        while not self._buffer:
            await self._wait()
        found = list(self._buffer)
        self._buffer.clear()
        return found

    async def close(self) -> None:
        """Unsubscribe. What is buffered can still be read; then the iteration ends. An async callback that runs is
        cancelled."""
        if not self.is_closed:
            self.is_closed = True
            self._owner.finish(self)
            self._wake()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    def __len__(self) -> int:
        """Messages in the buffer."""
        return len(self._buffer)

    # For the client.

    def request(self, wire_id: str) -> PubSubSubscription:
        """What to ask the node for: everything from now on, or from where the last connection ended."""
        self.wire_id = wire_id
        now = asyncio.get_running_loop().time()
        if self._asked_at is None:
            self._asked_at = now
        wants_backlog = bool(self._positions) or self._backlog_s is not None
        backlog_s: float | UnsetType = UNSET
        if self._backlog_s is not None and not self._positions:  # nothing came yet: from where it was to begin
            backlog_s = self._backlog_s + now - self._asked_at
        return PubSubSubscription(
            subscription_id=wire_id,
            patterns=tuple(PubSubPattern(pattern, self._exact) for pattern in self.patterns),
            get_backlog=wants_backlog,
            backlog_seconds=backlog_s,
            after=self._positions or UNSET,
            batch=True,
            on_slow=self._on_slow,
        )

    def acknowledged(self, ack: PubSubAck) -> None:
        if ack.gap is True:
            self.gaps += 1
            log.warning("%s: the backlog does not reach back to the last connection; messages may be lost", self)
        if not self._positions and self._backlog_s is None and ack.positions is not UNSET:
            self._positions = ack.positions

    def take(self, notification: PubSubNotification, encoding: Encoding) -> None:
        if self.is_closed:
            return
        raw = notification.messages
        if raw is UNSET:
            if notification.message is UNSET:
                return
            raw = as_list(notification.message, encoding)
        messages, invalid = self._decoders[encoding](raw)
        if invalid:
            self.invalid += invalid
            log.warning("%s: %d payloads are not of the type %s", self, invalid, self._type)
        if notification.backlog:
            mark_backlog(messages)
        if notification.positions is not UNSET:
            self._positions.update(notification.positions)
            while len(self._positions) > ORIGINS_MAX:
                del self._positions[next(iter(self._positions))]
        if self._callback is not None:
            self._call_now(messages)
            return
        self._buffer.extend(messages)
        if len(self._buffer) > self._buffer_max:
            self._overflow()
        self._wake()

    def fail(self, error: MpregError) -> None:
        """It can't go on: the iteration raises this after what is buffered."""
        self.error = error
        self._wake()

    def __repr__(self) -> str:
        return f"<Subscription {' '.join(self.patterns)}>"

    async def _wait(self) -> None:
        """For a message. Raises why none will come."""
        if self.error is not None:
            raise self.error
        if self.is_closed:
            raise StopAsyncIteration
        waiter = self._waiter
        if waiter is None or waiter.done():
            waiter = self._waiter = asyncio.get_running_loop().create_future()
        await asyncio.shield(waiter)

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _overflow(self) -> None:
        excess = len(self._buffer) - self._buffer_max
        if self._on_full == "drop_oldest":
            if not self.dropped:
                log.warning("%s: the buffer of %d messages is full; the oldest are dropped", self, self._buffer_max)
            for _ in range(excess):
                self._buffer.popleft()
            self.dropped += excess
            return
        for _ in range(excess):
            self._buffer.pop()
        self.is_closed = True
        self._owner.finish(self)
        self.fail(
            PubSubError(
                "PUBSUB_BUFFER_FULL",
                f"{self._buffer_max} messages were not read in time",
                limit=self._buffer_max,
            )
        )

    def _call_now(self, messages: list[Message[T]]) -> None:
        callback = self._callback
        assert callback is not None
        for message in messages:
            try:
                returned = callback(message)
                if returned is not None and inspect.iscoroutine(returned):
                    returned.close()
                    raise TypeError("the callback returned a coroutine: make it `async def`")
            except Exception:  # noqa: BLE001  # whatever the program's function does, the next message is for it too
                self._log_failure(message)

    async def _call(self, callback: Callback[T]) -> None:
        while True:
            try:
                message = await anext(self)
            except StopAsyncIteration:
                return
            except MpregError as error:
                log.error("%s has ended: %s", self, error)
                return
            try:
                awaited = callback(message)
                if awaited is not None:
                    await awaited
            except Exception:  # noqa: BLE001
                self._log_failure(message)

    def _log_failure(self, message: Message[T]) -> None:
        self.failed += 1
        log.exception("The subscriber of %s failed", message.topic)


def _is_async(callback: Any) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__)

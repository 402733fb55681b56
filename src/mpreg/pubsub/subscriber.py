"""A handler in the node's own program: messages wait for it in a bounded queue, and so many are handled at a time.

Nobody waits for it: when the queue is full the oldest messages are left out and counted (R-P5). What a handler raises
is logged with the topic, and the next message comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from mpreg.pubsub.message import Published
from mpreg.pubsub.patterns import Levels
from mpreg.pubsub.run import Run
from mpreg.pubsub.statistics import PubSubStatistics
from mpreg.wire.encoding import Encoding
from mpreg.wire.received import Message

log = logging.getLogger(__name__)

STRETCH: Final = 64
"""Messages that one worker handles before others get their turn, if the handler itself never waits."""

InThread = Callable[[Callable[..., Any], tuple[Any, ...]], Awaitable[Any]]
Reply = Callable[[str, Any], None]
"""Publishes the answer to a question."""


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """What a program declares."""

    name: str
    patterns: tuple[Levels, ...]
    call: Callable[..., Any]
    is_async: bool
    payload_type: Any = Any
    takes_message: bool = True
    """Else it takes the payload alone."""
    concurrency: int = 1
    """How many messages it handles at a time. One: in the order of publishing."""
    buffer_max: int = 10_000


class Subscriber:
    """One handler at work, as the receiver of its subscription."""

    def __init__(self, handler: Handler, statistics: PubSubStatistics, in_thread: InThread, reply: Reply) -> None:
        self.handler = handler
        self.handled = 0
        self.failed = 0
        self.invalid = 0
        self.dropped = 0
        self._statistics = statistics
        self._in_thread = in_thread
        self._reply = reply
        self._queue: deque[Published] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._decode = {
            Encoding.JSON: msgspec.json.Decoder(handler.payload_type).decode,
            Encoding.MSGPACK: msgspec.msgpack.Decoder(handler.payload_type).decode,
        }

    # The contract of a receiver.

    def take(self, run: Run) -> None:
        queue, most = self._queue, self.handler.buffer_max
        queue.extend(run.messages)
        if len(queue) > most:
            self._drop(len(queue) - most)
        for _ in range(min(self.handler.concurrency - len(self._workers), len(queue))):
            self._workers.add(asyncio.create_task(self._work(), name=f"mpreg-subscriber-{self.handler.name}"))

    def end(self) -> None:
        """Nothing more comes; what waits is still handled, until `stop`."""

    # At the end of the node.

    async def finished(self) -> None:
        """All that waits is handled."""
        while self._workers:
            await asyncio.wait(self._workers)

    async def stop(self) -> None:
        """Handle nothing more, cancel what is handled now."""
        left = len(self._queue) + len(self._workers)
        if left:
            log.warning("%s is stopped before it has handled its last %d messages", self.handler.name, left)
        self._statistics.messages_dropped += len(self._queue)
        self._queue.clear()
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers)

    def report(self) -> dict[str, Any]:
        return {
            "name": self.handler.name,
            "patterns": [".".join(levels) for levels in self.handler.patterns],
            "waiting": len(self._queue),
            "running": len(self._workers),
            "handled": self.handled,
            "failed": self.failed,
            "invalid": self.invalid,
            "dropped": self.dropped,
        }

    def _drop(self, count: int) -> None:
        if not self.dropped:
            log.warning("%s does not keep up: the oldest of its messages are dropped", self.handler.name)
        for _ in range(count):
            self._queue.popleft()
        self.dropped += count
        self._statistics.messages_dropped += count

    async def _work(self) -> None:
        """Until nothing waits. There is no moment at which it does nothing and counts as a worker."""
        handled = 0
        try:
            while self._queue:
                published = self._queue.popleft()
                self._statistics.messages_delivered += 1
                await self._handle(published)
                handled += 1
                if handled % STRETCH == 0:
                    await asyncio.sleep(0)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._workers.discard(task)

    async def _handle(self, published: Published) -> None:
        topic = published.message.topic
        try:
            payload = self._decode[published.encoding](published.message.payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
            self.invalid += 1
            log.warning("%s: a payload of %s does not fit: %s", self.handler.name, topic, problem)
            return
        message = received(published, payload)
        try:
            result = await self._call(message if self.handler.takes_message else payload)
            if result is not None and message.reply_to is not None:
                self._reply(message.reply_to, result)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # a handler that raises SystemExit does not end the node
            if isinstance(problem, asyncio.CancelledError) and _is_being_cancelled():
                raise
            self.failed += 1
            log.error("%s failed on %s", self.handler.name, topic, exc_info=problem)
        else:
            self.handled += 1

    async def _call(self, argument: Any) -> Any:
        handler = self.handler
        if handler.is_async:
            return await handler.call(argument)
        return await self._in_thread(handler.call, (argument,))


def received(published: Published, payload: Any) -> Message[Any]:
    """A message as a subscriber reads it."""
    message = published.message
    return Message(
        topic=message.topic,
        payload=payload,
        timestamp=message.timestamp or 0.0,
        message_id=message.message_id or "",
        publisher=message.publisher or None,
        headers=message.headers or {},
        reply_to=message.reply_to or None,
    )


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

"""Queues for scripts: as `queue.py`, each call waited for.

orders = client.queue("orders")
orders.send({"sku": "tea"})
for message in orders.receive():
    with message:                        # acknowledged at its end; given back if it raises
        handle(message.payload)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from mpreg.client.queue import PREFETCH, Queue
from mpreg.client.queue_message import Message, Peeked
from mpreg.client.queue_receiving import Receiving
from mpreg.client.queue_sending import Receipt
from mpreg.errors import MpregError
from mpreg.loop_thread import LoopThread
from mpreg.wire.queues import QueueStatisticsPayload


class SyncMessage:
    """A message whose lease is kept by the client's own thread. Its fields are those of the asyncio message."""

    def __init__(self, loop: LoopThread, message: Message[Any]) -> None:
        self._loop = loop
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def ack(self) -> str:
        return self._loop.run(_settle(self._message, "ack"))

    def retry(self, after: float | None = None, reason: str = "") -> str:
        return self._loop.run(_settle(self._message, "retry", after, reason))

    def dead_letter(self, reason: str) -> str:
        return self._loop.run(_settle(self._message, "dead_letter", reason))

    def release(self) -> str:
        return self._loop.run(_settle(self._message, "release"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._message.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._message)


class SyncQueue:
    """Made by `sync.Client.queue`; the parameters are those of `Queue`."""

    def __init__(self, loop: LoopThread, queue: Queue) -> None:
        self._loop = loop
        self._queue = queue
        self.name = queue.name

    def create(self, queue_type: str = "priority", **settings: Any) -> bool:
        return self._loop.run(self._queue.create(queue_type, **settings))

    def send(self, payload: Any, **how: Any) -> Receipt:
        return self._loop.run(self._send(payload, how))

    def send_many(self, payloads: Iterable[Any], **how: Any) -> list[Receipt | MpregError]:
        return self._loop.run(self._queue.send_many(payloads, **how))

    def receive(
        self, topics: str | Iterable[str] = "#", *, payload_type: Any = Any, prefetch: int = PREFETCH, **how: Any
    ) -> Iterator[SyncMessage]:
        """Messages, for ever. Leaving the loop gives back what was not acknowledged."""
        receiving = self._loop.run(self._receiving(topics, payload_type, prefetch, how))
        try:
            while True:
                yield SyncMessage(self._loop, self._loop.run(receiving.next()))
        finally:
            self._loop.run(receiving.close())

    def stats(self) -> QueueStatisticsPayload:
        return self._loop.run(self._queue.stats())

    def peek(self, limit: int = 10, *, topics: str = "#", payload_type: Any = Any) -> list[Peeked]:
        return self._loop.run(self._queue.peek(limit, topics=topics, payload_type=payload_type))

    def purge(self) -> int:
        return self._loop.run(self._queue.purge())

    def delete(self) -> int:
        return self._loop.run(self._queue.delete())

    def redrive(self, limit: int | None = None) -> int:
        return self._loop.run(self._queue.redrive(limit))

    def __repr__(self) -> str:
        return repr(self._queue)

    async def _send(self, payload: Any, how: dict[str, Any]) -> Receipt:
        return await self._queue.send(payload, **how)

    async def _receiving(
        self, topics: str | Iterable[str], payload_type: Any, prefetch: int, how: dict[str, Any]
    ) -> Receiving[Any]:
        receiving = self._queue.receive(topics, payload_type=payload_type, prefetch=prefetch, **how)
        await receiving.begin()
        return receiving


async def _settle(message: Message[Any], verb: str, *args: Any) -> str:
    outcome: str = await getattr(message, verb)(*args)
    return outcome

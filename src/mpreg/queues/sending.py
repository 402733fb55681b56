"""Messages of one queue on their way to the store: what comes while a batch is under way is the next batch.

So what a connection sends is stored in the order in which it was sent (R-W6), and the busier the queue, the less a
message costs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mpreg.errors import MpregError, ProtocolError, QueueError, ResourceError
from mpreg.queues.message import digest_of
from mpreg.queues.parcels import Parcels, parcels_of
from mpreg.queues.records import Packed, Sent
from mpreg.queues.state import OTHERWISE, SEND_MAX, Queue
from mpreg.wire.queues import Outgoing

log = logging.getLogger(__name__)

BATCH_BYTES_MAX: Final = 4_000_000

Answers = list[Sent | QueueError]
Answer = Callable[[Answers | MpregError], None]


class Entry(msgspec.Struct):
    """What one request sends."""

    asked: list[Outgoing]
    packed: list[Packed]
    answer: Answer
    bytes: int


class Sending:
    def __init__(self, queue: Queue, messages_max: int, bytes_max: int) -> None:
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._waiting: deque[Entry] = deque()
        self._messages = 0
        self._bytes = 0
        self._deduplicates = False
        self._under_way = False
        self._scheduled = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """Messages that wait or are under way."""
        return self._messages

    def add(self, asked: list[Outgoing], packed: list[Packed], answer: Answer) -> None:
        """`answer` is called once. Raises `RESOURCE_EXHAUSTED`."""
        size = sum(len(one.payload) for one in packed)
        if self._messages + len(packed) > self._messages_max or self._bytes + size > self._bytes_max:
            raise ResourceError(
                "RESOURCE_EXHAUSTED",
                f"{self._messages} messages to {self._queue.name!r} wait for the store",
                limit=self._messages_max,
                limit_bytes=self._bytes_max,
            )
        self._waiting.append(Entry(asked, packed, answer, size))
        self._messages += len(packed)
        self._bytes += size
        self._idle.clear()
        if not self._under_way and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    async def drained(self) -> None:
        await self._idle.wait()

    def _flush(self) -> None:
        self._scheduled = False
        while self._waiting and not self._under_way:
            entries = self._take()
            try:
                self._send(entries)
            except MpregError as error:
                self._answered(entries, error)
        if not self._messages:
            self._idle.set()

    def _take(self) -> list[Entry]:
        entries: list[Entry] = []
        messages = size = 0
        while self._waiting:
            first = self._waiting[0]
            if entries and (messages + len(first.packed) > SEND_MAX or size + first.bytes > BATCH_BYTES_MAX):
                break
            messages += len(first.packed)
            size += first.bytes
            entries.append(self._waiting.popleft())
        return entries

    def _send(self, entries: list[Entry]) -> None:
        packed = entries[0].packed if len(entries) == 1 else [one for entry in entries for one in entry.packed]
        if self._deduplicates:  # only for this attempt: the queue may say that it is none of that kind
            asked = [one for entry in entries for one in entry.asked]
            packed = [_known_by_payload(*pair) for pair in zip(asked, packed, strict=True)]
        parcels = parcels_of(packed)
        future = self._queue.send_parcels(parcels, deduplicates=self._deduplicates)
        self._under_way = True
        future.add_done_callback(lambda done: self._stored(entries, parcels, done))

    def _stored(self, entries: list[Entry], parcels: Parcels, done: asyncio.Future[list[Any] | int]) -> None:
        self._under_way = False
        result: Answers | MpregError
        try:
            reply = done.result()
            if reply == OTHERWISE:  # it took none of them
                self._deduplicates = not self._deduplicates
                self._send(entries)
                return
            result = self._queue.sent(parcels, reply)
        except MpregError as error:
            result = error
        except asyncio.CancelledError:
            return
        except Exception:
            log.exception("%r: what became of a send can't be read", self._queue)
            result = ProtocolError("PROTOCOL_INTERNAL_ERROR", "The node failed; its log says why", state_changed=None)
        self._answered(entries, result)
        self._flush()

    def _answered(self, entries: list[Entry], result: Answers | MpregError) -> None:
        at = 0
        for entry in entries:
            count = len(entry.packed)
            self._messages -= count
            self._bytes -= entry.bytes
            entry.answer(result if isinstance(result, MpregError) else result[at : at + count])
            at += count


def _known_by_payload(asked: Outgoing, packed: Packed) -> Packed:
    if packed.digest:
        return packed
    return Packed(packed.meta, packed.payload, digest_of(None, asked.topic, bytes(asked.message_payload)))

"""The one way of a message through the node: ids and times that are missing, repeats, the backlog, whom it goes to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import UNSET

from mpreg.pubsub.backlog import Backlog
from mpreg.pubsub.delivery import Delivery
from mpreg.pubsub.exchange import Exchange
from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.message import ENVELOPE_BYTES, Published
from mpreg.pubsub.outbox import Receiver
from mpreg.pubsub.repeats import Repeats
from mpreg.pubsub.statistics import PubSubStatistics
from mpreg.wire.encoding import Encoding
from mpreg.wire.pubsub import PubSubMessage

Clock = Callable[[], float]
Forward = Callable[[list[Published]], None]
"""To the nodes where somebody wants them."""
Tap = Callable[[list[Published]], None]


class Publishing:
    def __init__(
        self,
        origin: str,
        exchange: Exchange[Receiver],
        backlog: Backlog,
        delivery: Delivery,
        statistics: PubSubStatistics,
        limits: PubSubLimits,
        clock: Clock = time.time,
    ) -> None:
        self.origin = origin
        self.seq = 0
        """The place of the last message."""
        self.bytes = 0
        """Of all messages so far, about."""
        self.forward: Forward | None = None
        """In a cluster whose other nodes want anything."""
        self.taps: list[Tap] = []
        """Who counts what is published."""
        self._exchange = exchange
        self._backlog = backlog
        self._delivery = delivery
        self._statistics = statistics
        self._repeats = Repeats(limits)
        self._clock = clock

    def publish(self, messages: Sequence[PubSubMessage], encoding: Encoding) -> int:
        """All or none: raises `PUBSUB_INVALID_TOPIC` before anything is published. How many were repeats."""
        match = self._exchange.match
        all_targets = [match(message.topic) for message in messages]
        now, origin, seq = self._clock(), self.origin, self.seq
        add = self._delivery.add
        accepted: list[Published] = []
        duplicates = total = 0
        for message, targets in zip(messages, all_targets, strict=True):
            if message.message_id is UNSET:
                seq += 1
                message.message_id = f"{origin}-{seq}"
            else:
                if message.publisher is not UNSET and self._is_repeat(message.publisher, message.message_id):
                    duplicates += 1
                    continue
                seq += 1
            if message.timestamp is UNSET:
                message.timestamp = now
            size = len(memoryview(message.payload)) + len(message.topic) + ENVELOPE_BYTES
            published = Published(seq, now, encoding, message, size)
            accepted.append(published)
            total += size
            if targets:
                add(targets, published)
        self.seq = seq
        self.bytes += total
        if self._backlog.keeps:
            self._backlog.add(accepted)
            self._backlog.trim(now)
        if self.forward is not None:
            self.forward(accepted)
        for tap in self.taps:
            tap(accepted)
        self._statistics.messages_published += len(accepted)
        self._statistics.duplicates += duplicates
        return duplicates

    def arrived(self, origin: str, seqs: Sequence[int], messages: Sequence[PubSubMessage], encoding: Encoding) -> None:
        """Published at another node. What this publisher has sent to two nodes is delivered once here."""
        match, now, add = self._exchange.match, self._clock(), self._delivery.add
        for seq, message in zip(seqs, messages, strict=True):
            targets = match(message.topic)
            if message.message_id is UNSET or (
                message.publisher is not UNSET and self._is_repeat(message.publisher, message.message_id)
            ):
                self._statistics.duplicates += 1
                continue
            if targets:
                size = len(memoryview(message.payload)) + len(message.topic) + ENVELOPE_BYTES
                add(targets, Published(seq, now, encoding, message, size, origin=origin))

    def _is_repeat(self, publisher: str, message_id: str) -> bool:
        if self._repeats.is_known(publisher, message_id):
            return True
        self._repeats.add(publisher, message_id)
        return False

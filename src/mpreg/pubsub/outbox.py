"""What goes to one subscription of a connection: in order, the backlog first, and never more into its link than it
reads.

A run that the subscriber is not ready for waits here, as a reference to what all share. Nobody else waits for it
(R-P5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from typing import Final, Protocol

from mpreg.errors import MpregError, ResourceError
from mpreg.pubsub import frames
from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.run import Run
from mpreg.pubsub.statistics import PubSubStatistics
from mpreg.transport import Link
from mpreg.wire.encoding import Encoding


class Receiver(Protocol):
    """Takes what a subscription gets."""

    def take(self, run: Run) -> None: ...

    def end(self) -> None:
        """The subscription has ended."""


class Load:
    """What waits for one connection, in all its outboxes."""

    __slots__ = ("bytes", "replayed")

    def __init__(self) -> None:
        self.bytes = 0
        """Of live messages."""
        self.replayed = 0
        """Messages of the backlog."""


_NONE: Final = deque[Run](maxlen=0)
"""Of an outbox in which nothing waits, as nearly all are: a queue of its own takes 600 bytes."""


class Outbox:
    __slots__ = (
        "_backlog",
        "_batch",
        "_drop_oldest",
        "_encoding",
        "_ended",
        "_held",
        "_id",
        "_left_out",
        "_limits",
        "_link",
        "_load",
        "_prefix",
        "_sent",
        "_slow",
        "_statistics",
        "_waiting",
        "_waiting_bytes",
        "_waiting_messages",
        "_written_max",
    )

    def __init__(
        self,
        link: Link,
        load: Load,
        subscription_id: str,
        encoding: Encoding,
        limits: PubSubLimits,
        statistics: PubSubStatistics,
        slow: set[Outbox],
        *,
        batch: bool,
        drop_oldest: bool,
    ) -> None:
        self._link = link
        self._load = load
        self._encoding = encoding
        self._batch = batch
        self._drop_oldest = drop_oldest
        self._limits = limits
        self._statistics = statistics
        self._slow = slow
        self._id = subscription_id
        self._prefix = frames.prefix(encoding, subscription_id, batch=batch, backlog=False)
        self._written_max = min(limits.written_bytes_max, link.limits.waiting_bytes_max // 2)
        self._sent = 0
        self._backlog = _NONE
        self._waiting = _NONE
        self._waiting_messages = 0
        self._waiting_bytes = 0
        self._ended = False
        self._held = False
        self._left_out: Container[str] = ()

    def __len__(self) -> int:
        """Live messages that wait."""
        return self._waiting_messages

    def take(self, run: Run) -> None:
        if self._ended:
            return
        if self._held:
            known = self._left_out
            kept = run.only(lambda published: published.origin not in known)
            if kept is not None:
                self._hold(kept)
            return
        if self._waiting or self._backlog or self._link.waiting > self._written_max:
            self._hold(run)
        else:
            self._write(run)

    @property
    def ended(self) -> bool:
        return self._ended

    def hold(self, left_out: Container[str]) -> None:
        """Live messages wait until `release`, while a backlog is gathered; those of the origins `left_out` are dropped,
        as they will be in that backlog."""
        self._held = True
        self._left_out = left_out

    def release(self, backlog: Iterable[Run]) -> None:
        """The backlog first, then what came live meanwhile."""
        self._held = False
        if not self._ended:
            self.replay(backlog)

    def replay(self, runs: Iterable[Run]) -> None:
        """What was published before the subscription began, before anything else."""
        self._backlog = deque(runs)
        self._load.replayed += sum(map(len, self._backlog))
        self._slow.add(self)
        self.pump()

    def pump(self) -> bool:
        """Write what waits, as far as the subscriber has read what was written. Whether that was anything."""
        progress = False
        if self._held:
            return progress
        while self._link.waiting <= self._written_max and not self._ended:
            if self._backlog:
                run = self._backlog.popleft()
                self._load.replayed -= len(run)
                self._write(run)
                progress = True
            elif self._waiting:
                run = self._waiting.popleft()
                self._forget(len(run.messages), run.size)
                self._write(run)
                progress = True
            else:
                self._slow.discard(self)
                self._backlog = self._waiting = _NONE
                break
        return progress

    def end(self) -> None:
        self._ended = True
        self._forget(self._waiting_messages, self._waiting_bytes)
        self._load.replayed -= sum(map(len, self._backlog))
        self._backlog = self._waiting = _NONE
        self._slow.discard(self)

    def _write(self, run: Run) -> None:
        encoding, prefix = self._encoding, self._prefix
        if run.backlog:
            prefix = frames.prefix(encoding, self._id, batch=self._batch, backlog=True)
        try:
            if self._batch:
                self._link.send(prefix + run.tail(encoding), encoding)
            else:
                for body in run.bodies(encoding):
                    self._sent += 1
                    self._link.send(frames.single(encoding, prefix, self._sent, body), encoding)
        except MpregError:  # a message over the limit of this link, which is alone in its run
            self._statistics.messages_dropped += len(run.messages)
        else:
            left_out = run.left_out(encoding)
            self._statistics.messages_dropped += left_out
            self._statistics.messages_delivered += len(run.messages) - left_out

    def _hold(self, run: Run) -> None:
        if self._waiting is _NONE:
            self._waiting = deque()
        self._waiting.append(run)
        self._waiting_messages += len(run.messages)
        self._waiting_bytes += run.size
        self._load.bytes += run.size
        self._slow.add(self)
        if self._drop_oldest:
            self._drop()
        elif self._load.bytes + self._link.waiting > self._link.limits.waiting_bytes_max:
            self._disconnect()

    def _drop(self) -> None:
        """The oldest, until the rest is within the limits; the newest stays, whatever its size."""
        limits = self._limits
        while (
            self._waiting_messages > limits.waiting_messages_max or self._waiting_bytes > limits.waiting_bytes_max
        ) and self._waiting_messages > 1:
            first = self._waiting.popleft()
            excess = self._waiting_messages - limits.waiting_messages_max
            if self._waiting_bytes > limits.waiting_bytes_max or excess >= len(first.messages):
                count = len(first.messages) if self._waiting else len(first.messages) - 1
            else:
                count = excess
            kept = 0
            if count < len(first.messages):
                rest = first.without(count)
                self._waiting.appendleft(rest)
                kept = rest.size
            self._forget(count, first.size - kept)
            self._statistics.messages_dropped += count

    def _disconnect(self) -> None:
        limit = self._link.limits.waiting_bytes_max
        self._statistics.slow_disconnects += 1
        self._statistics.messages_dropped += self._waiting_messages
        self.end()
        self._link.close(
            ResourceError(
                "RESOURCE_SLOW_CONSUMER",
                f"More than {limit} bytes wait to be read by this subscriber",
                limit="waiting_bytes_max",
                waiting_bytes_max=limit,
            )
        )

    def _forget(self, messages: int, size: int) -> None:
        self._waiting_messages -= messages
        self._waiting_bytes -= size
        self._load.bytes -= size

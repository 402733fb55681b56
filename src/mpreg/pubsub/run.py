"""A run of messages that go to the same subscriptions: encoded once for each encoding, whoever and however many
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mpreg.pubsub import frames
from mpreg.pubsub.message import Published
from mpreg.wire.encoding import Encoding
from mpreg.wire.pubsub import PubSubMessage

RUN_BYTES: Final = 48 * 1024
"""A run is closed when it has reached this. Long enough that a frame costs little, short enough that a link copies it
behind its header and joins it with others in one write."""


class Run:
    __slots__ = ("_bodies", "_left_out", "_tails", "backlog", "messages", "origin", "size")

    def __init__(self, origin: str, messages: list[Published], size: int = 0, *, backlog: bool = False) -> None:
        self.origin = origin
        self.messages = messages
        self.size = size
        self.backlog = backlog
        self._left_out: dict[Encoding, int] = {}
        self._tails: dict[Encoding, bytes] = {}
        self._bodies: dict[Encoding, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self.messages)

    def tail(self, encoding: Encoding) -> bytes:
        """Of a batch frame."""
        tail = self._tails.get(encoding)
        if tail is None:
            tail = frames.batch_tail(encoding, self.positions(), self._encodable(encoding))
            self._tails[encoding] = tail
        return tail

    def positions(self) -> dict[str, int]:
        """How far it brings a subscriber, by origin."""
        own = self.origin
        return {each.origin or own: each.seq for each in self.messages}

    def only(self, wanted: Callable[[Published], bool]) -> Run | None:
        """The run without what is not wanted; None if that is everything."""
        kept = [published for published in self.messages if wanted(published)]
        if len(kept) == len(self.messages):
            return self
        size = sum(published.size for published in kept)
        return Run(self.origin, kept, size, backlog=self.backlog) if kept else None

    def bodies(self, encoding: Encoding) -> list[bytes]:
        """Each message alone."""
        bodies = self._bodies.get(encoding)
        if bodies is None:
            bodies = list(map(frames.ENCODE[encoding], self._encodable(encoding)))
            self._bodies[encoding] = bodies
        return bodies

    def without(self, count: int) -> Run:
        """The run but for its first messages."""
        rest = self.messages[count:]
        return Run(self.origin, rest, sum(published.size for published in rest), backlog=self.backlog)

    def left_out(self, encoding: Encoding) -> int:
        """How many messages have no such encoding; known once it was encoded."""
        return self._left_out.get(encoding, 0)

    def _encodable(self, encoding: Encoding) -> list[PubSubMessage]:
        found = [message for each in self.messages if (message := each.in_encoding(encoding)) is not None]
        if len(found) < len(self.messages):
            self._left_out[encoding] = len(self.messages) - len(found)
        return found


def runs_of(
    origin: str, messages: Iterable[Published], *, run_bytes: int = RUN_BYTES, backlog: bool = False
) -> Iterator[Run]:
    chosen: list[Published] = []
    size = 0
    for published in messages:
        if published.size >= run_bytes and chosen:
            yield Run(origin, chosen, size, backlog=backlog)
            chosen, size = [], 0
        chosen.append(published)
        size += published.size
        if size >= run_bytes:
            yield Run(origin, chosen, size, backlog=backlog)
            chosen, size = [], 0
    if chosen:
        yield Run(origin, chosen, size, backlog=backlog)

"""The backlog of a whole cluster for one new subscription (R-P4): every node is asked, each answers page by page, and
what came live meanwhile waits behind it.

The seam at another node has no gap and no duplicate: it knows of the interest before it is asked, and its answers and
its live messages come over one link, in order. So what comes live before its last page is in its pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import UNSET

from mpreg.pubsub.message import ENVELOPE_BYTES, Published
from mpreg.transport.session import Session
from mpreg.wire.encoding import Encoding
from mpreg.wire.pubsub import InternalBacklogAnswer

GATHER_S: Final = 2.0
"""A node that has not answered by then is left out, and the subscriber is told of a gap."""
SKEW_S: Final = 1.0
"""Clocks that differ by less are believed: the way of an answer may take as long."""


class Gathering:
    """`waits_for` are the nodes that have not answered yet, with the name of their run."""

    def __init__(
        self,
        nodes: dict[Session, str],
        own: Sequence[Published],
        bytes_max: int,
        *,
        wants_backlog: bool,
        finished: Callable[[Gathering], None],
    ) -> None:
        self.waits_for = nodes
        self.left_out: set[str] = set(nodes.values()) if wants_backlog else set()
        """Origins whose live messages will be in their pages."""
        self.positions: dict[str, int] = {}
        self.gap = False
        self._collected = list(own)
        self._bytes = sum(published.size for published in own)
        self._bytes_max = bytes_max
        self._wants_backlog = wants_backlog
        self._finished = finished
        self._done = False

    def take(self, node: Session, answer: InternalBacklogAnswer, encoding: Encoding, now: float) -> int | None:
        """The position from which to ask on, if there is more."""
        origin = self.waits_for.get(node)
        if origin is None or self._done:
            return None
        self.gap = self.gap or answer.gap
        ahead = now - answer.now
        ahead = ahead if abs(ahead) > SKEW_S else 0.0
        for seq, at, message in zip(answer.seqs, answer.times, answer.messages, strict=False):
            size = len(memoryview(message.payload)) + len(message.topic) + ENVELOPE_BYTES
            self._bytes += size
            self._collected.append(Published(seq, at + ahead, encoding, message, size, origin=origin))
        self.positions[origin] = answer.seq
        if answer.parts:
            return None
        if answer.more and self._bytes <= self._bytes_max:
            return answer.seq
        self.gap = self.gap or answer.more
        self._answered(node)
        return None

    def lost(self, node: Session) -> None:
        """It will not answer."""
        if node in self.waits_for and not self._done:
            self.gap = self.gap or self._wants_backlog
            self._answered(node)

    def expire(self) -> None:
        for node in list(self.waits_for):
            self.lost(node)

    def messages(self) -> list[Published]:
        """The oldest first; what one publisher has sent to two nodes once."""
        known: set[tuple[object, object]] = set()
        found: list[Published] = []
        for published in sorted(_in_step(self._collected), key=lambda each: each.at):
            message = published.message
            if message.publisher is not UNSET:
                key = (message.publisher, message.message_id)
                if key in known:
                    continue
                known.add(key)
            found.append(published)
        return found

    def _answered(self, node: Session) -> None:
        self.left_out.discard(self.waits_for.pop(node))
        if not self.waits_for:
            self._done = True
            self._finished(self)


def _in_step(messages: Iterable[Published]) -> list[Published]:
    """A clock that was set back must not change the order within an origin."""
    latest: dict[str, float] = {}
    kept: list[Published] = []
    for published in messages:
        published_at = max(published.at, latest.get(published.origin, published.at))
        latest[published.origin] = published_at
        if published_at != published.at and published.origin:
            published.at = published_at  # a copy that only this gathering has
        kept.append(published)
    return kept

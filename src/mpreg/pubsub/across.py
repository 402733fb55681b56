"""Topics across the nodes of a cluster, as seen by one node: who wants what elsewhere, what crosses, whose backlog is
asked for. Nodes are sessions; each has a run, which names it in positions.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import UNSET

from mpreg.errors import ProtocolError
from mpreg.pubsub.backlog import Backlog
from mpreg.pubsub.elsewhere import Elsewhere
from mpreg.pubsub.exchange import Interest
from mpreg.pubsub.forwarding import Forwarding
from mpreg.pubsub.gathering import GATHER_S, Gathering
from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.message import Published
from mpreg.pubsub.patterns import Levels, join_levels, parse_pattern
from mpreg.pubsub.publishing import Publishing
from mpreg.pubsub.statistics import PubSubStatistics
from mpreg.pubsub.told import TOLD_MAX, Told
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.message import Message
from mpreg.wire.pubsub import (
    InternalBacklog,
    InternalBacklogAnswer,
    InternalInterest,
    InternalPublish,
    PubSubSubscription,
)

PAGE_BYTES: Final = 1_000_000
PATTERNS_A_MESSAGE: Final = 2_000


class Across:
    def __init__(
        self,
        interest: Interest,
        publishing: Publishing,
        backlog: Backlog,
        deliver: Callable[[], None],
        statistics: PubSubStatistics,
        limits: PubSubLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`deliver` gives subscribers at once what has come so far."""
        self.nodes: dict[Session, str] = {}
        """Linked ones, with the name of their run."""
        self.elsewhere: Elsewhere[Session] = Elsewhere(limits)
        self._publishing = publishing
        self._backlog = backlog
        self._deliver = deliver
        self._statistics = statistics
        self._limits = limits
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._told = Told()
        self._telling = False
        self._forwarding = Forwarding(self.elsewhere.match, statistics)
        self._gatherings: dict[str, tuple[Gathering, InternalBacklog, asyncio.TimerHandle]] = {}
        self._next_u = itertools.count(1).__next__
        for pattern in interest:
            self._told.changed(pattern, True)
        interest.watch(self._changed)

    @property
    def handlers(self) -> dict[type[Message], Callable[[Session, Any, Encoding], None]]:
        """Of messages from nodes."""
        return {
            InternalInterest: self._interest,
            InternalPublish: self._publish,
            InternalBacklog: self._asked,
            InternalBacklogAnswer: self._answered,
        }

    def __len__(self) -> int:
        """Gatherings under way."""
        return len(self._gatherings)

    def linked(self, node: Session, origin: str) -> None:
        """`origin` is the node's run."""
        self._tell()
        self.nodes[node] = origin
        everything = self._told.everything()
        for at in range(0, max(len(everything), 1), PATTERNS_A_MESSAGE):
            part = tuple(map(join_levels, everything[at : at + PATTERNS_A_MESSAGE]))
            node.send(InternalInterest(add=part, reset=at == 0), Encoding.MSGPACK)

    def unlinked(self, node: Session) -> None:
        self.nodes.pop(node, None)
        self.elsewhere.forget(node)
        self._forwarding.forget(node)
        for gathering, _, _ in list(self._gatherings.values()):
            gathering.lost(node)
        self._switch()

    def close(self) -> None:
        self._forwarding.close()
        for _, _, timer in self._gatherings.values():
            timer.cancel()
        self._gatherings.clear()

    def wanted_by(self, node: Session) -> list[str]:
        return sorted(map(join_levels, self.elsewhere.wanted_by(node)))

    def report(self) -> dict[str, Any]:
        return {
            "messages_forwarded": self._statistics.messages_forwarded,
            "messages_dropped_between_nodes": self._statistics.messages_dropped_between_nodes,
            "patterns_elsewhere": sum(len(self.elsewhere.wanted_by(node)) for node in self.nodes),
        }

    def gather(
        self,
        patterns: tuple[Levels, ...],
        asked: PubSubSubscription,
        seconds: float | None,
        own: Sequence[Published],
        finished: Callable[[Gathering], None],
    ) -> Gathering:
        """Ask every linked node for its position, and for its backlog if `seconds` says how far back."""
        self._tell()
        u = f"b{self._next_u()}"

        def done(gathering: Gathering) -> None:
            self._gatherings.pop(u)[2].cancel()
            finished(gathering)

        gathering = Gathering(
            dict(self.nodes),
            own,
            self._limits.backlog_bytes_max,
            wants_backlog=seconds is not None,
            finished=done,
        )
        question = InternalBacklog(
            u,
            tuple(map(join_levels, patterns)),
            UNSET if seconds is None else seconds,
            UNSET if seconds is None else asked.after,
        )
        self._gatherings[u] = (gathering, question, self._loop.call_later(GATHER_S, gathering.expire))
        for node in self.nodes:
            node.send(question, Encoding.MSGPACK)
        return gathering

    # This node's interest.

    def _changed(self, pattern: Levels, wanted: bool) -> None:
        self._told.changed(pattern, wanted)
        if not self._telling:
            self._telling = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._telling = False
        if not self._told.is_pending:
            return
        add, remove = self._told.take()
        for at in range(0, max(len(add), len(remove)), PATTERNS_A_MESSAGE):
            part = slice(at, at + PATTERNS_A_MESSAGE)
            news = InternalInterest(
                add=tuple(map(join_levels, add[part])), remove=tuple(map(join_levels, remove[part]))
            )
            for node in self.nodes:
                node.send(news, Encoding.MSGPACK)

    # Messages of nodes.

    def _interest(self, node: Session, message: InternalInterest, encoding: Encoding) -> None:
        if node not in self.nodes:
            return
        if len(self.elsewhere.wanted_by(node)) + len(message.add) > 2 * TOLD_MAX:
            text = f"A node tells of at most {2 * TOLD_MAX} patterns"
            raise ProtocolError("PROTOCOL_INVALID_MESSAGE", text, path="$.add", limit=2 * TOLD_MAX)
        self.elsewhere.change(node, _parsed(message.add), _parsed(message.remove), reset=message.reset)
        self._switch()

    def _switch(self) -> None:
        """While nobody elsewhere wants anything, publishing does not ask."""
        self._publishing.forward = self._forwarding.add if self.elsewhere else None

    def _publish(self, node: Session, message: InternalPublish, encoding: Encoding) -> None:
        origin = self.nodes.get(node)
        if origin is None:
            return
        if len(message.seqs) != len(message.messages):
            raise ProtocolError("PROTOCOL_INVALID_MESSAGE", "One place for each message", path="$.seqs")
        self._publishing.arrived(origin, message.seqs, message.messages, encoding)

    def _asked(self, node: Session, message: InternalBacklog, encoding: Encoding) -> None:
        self._forwarding.flush()
        publishing, backlog, now = self._publishing, self._backlog, self._clock()
        page: list[Published] = []
        seq, more, gap = publishing.seq, False, False
        if message.seconds is not UNSET:
            backlog.trim(now)
            after = 0 if message.after is UNSET else message.after.get(publishing.origin, 0)
            gap = message.after is not UNSET and after < backlog.dropped_up_to
            found = backlog.matching(_parsed(message.patterns), now - message.seconds, after)
            page = _page(found)
            if len(page) < len(found):
                more, seq = True, page[-1].seq
        self._answer(node, message.u, page, now, seq, more, gap)

    def _answer(
        self, node: Session, u: str, page: list[Published], now: float, seq: int, more: bool, gap: bool
    ) -> None:
        """A part for each stretch of one encoding."""
        parts = list(_stretches(page)) or [[]]
        for part in parts:
            last = part is parts[-1]
            encoding = part[0].encoding if part else Encoding.MSGPACK
            answer = InternalBacklogAnswer(
                u=u,
                seq=seq if last else part[-1].seq,
                seqs=tuple(published.seq for published in part),
                times=tuple(published.at for published in part),
                now=now,
                messages=tuple(published.message for published in part),
                more=more,
                parts=not last,
                gap=gap,
            )
            self._forwarding.send(node, codec.encode(answer, encoding), encoding)

    def _answered(self, node: Session, answer: InternalBacklogAnswer, encoding: Encoding) -> None:
        found = self._gatherings.get(answer.u)
        if found is None:
            return
        self._deliver()  # what came before it on the link is not to be delivered after it
        gathering, question, _ = found
        position = gathering.take(node, answer, encoding, self._clock())
        if position is not None:
            after = {} if question.after is UNSET else question.after
            origin = self.nodes.get(node, "")
            again = InternalBacklog(question.u, question.patterns, question.seconds, {**after, origin: position})
            node.send(again, Encoding.MSGPACK)


def _parsed(patterns: Sequence[str]) -> list[Levels]:
    return [levels for pattern in patterns if (levels := parse_pattern(pattern)) is not None]


def _page(found: list[Published]) -> list[Published]:
    size = 0
    for at, published in enumerate(found):
        size += published.size
        if at and size > PAGE_BYTES:
            return found[:at]
    return found


def _stretches(page: list[Published]) -> list[list[Published]]:
    parts: list[list[Published]] = []
    for published in page:
        if parts and parts[-1][0].encoding is published.encoding:
            parts[-1].append(published)
        else:
            parts.append([published])
    return parts

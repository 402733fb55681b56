"""Messages on their way to other nodes: each crosses to a node once, encoded once for all of them, and all of one turn
of the loop in one write.

A node that reads slowly holds up nobody: what waits for it is bounded, then the oldest messages are left out and
counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from mpreg.errors import MpregError
from mpreg.pubsub.message import Published
from mpreg.pubsub.run import RUN_BYTES
from mpreg.pubsub.statistics import PubSubStatistics
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.pubsub import InternalPublish

WRITTEN_MAX: Final = 1_000_000
"""Bytes handed to the link of a node before it has read them."""
WAITING_MAX: Final = 32_000_000
"""Bytes that wait here for one node."""
PUMP_S: Final = 0.002
PUMP_S_MAX: Final = 0.05

Nodes = tuple[Session, ...]
Frame = tuple[bytes, Encoding, int]
"""The bytes, their encoding, how many messages are lost with it; 0 for one that must not be left out."""


class Crossing:
    """To one node, in order."""

    def __init__(self, node: Session, statistics: PubSubStatistics) -> None:
        self._node = node
        self._statistics = statistics
        self._waiting: deque[Frame] = deque()
        self._bytes = 0

    def send(self, frame: Frame) -> bool:
        """Whether it could be written at once."""
        if not self._waiting and self._node.link.waiting <= WRITTEN_MAX:
            self._write(frame)
            return True
        self._waiting.append(frame)
        self._bytes += len(frame[0])
        while self._bytes > WAITING_MAX and self._drop_oldest():
            pass
        return False

    def pump(self) -> tuple[bool, bool]:
        """Was anything written; does nothing wait any more?"""
        progress = False
        while self._waiting and self._node.link.waiting <= WRITTEN_MAX:
            frame = self._waiting.popleft()
            self._bytes -= len(frame[0])
            self._write(frame)
            progress = True
        return progress, not self._waiting

    def _drop_oldest(self) -> bool:
        for at, (data, _, messages) in enumerate(self._waiting):
            if messages:
                del self._waiting[at]
                self._bytes -= len(data)
                self._statistics.messages_dropped_between_nodes += messages
                return True
        return False

    def _write(self, frame: Frame) -> None:
        data, encoding, messages = frame
        try:
            self._node.link.send(data, encoding)
            self._statistics.messages_forwarded += messages
        except MpregError:  # over the limit of what nodes send each other
            self._statistics.messages_dropped_between_nodes += messages


class Forwarding:
    def __init__(self, match: Callable[[str], Nodes], statistics: PubSubStatistics) -> None:
        self._match = match
        self._statistics = statistics
        self._loop = asyncio.get_running_loop()
        self._groups: dict[Nodes, list[Published]] = {}
        self._crossings: dict[Session, Crossing] = {}
        self._scheduled = False
        self._slow: set[Session] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._pump_s = PUMP_S

    def add(self, messages: list[Published]) -> None:
        """To leave at the end of this turn."""
        match, groups = self._match, self._groups
        for published in messages:
            nodes = match(published.message.topic)
            if nodes:
                group = groups.get(nodes)
                if group is None:
                    groups[nodes] = [published]
                else:
                    group.append(published)
        if groups and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def flush(self) -> None:
        groups, self._groups = self._groups, {}
        if len(groups) == 1:
            for nodes, messages in groups.items():
                self._send(nodes, messages)
            return
        wanted: dict[Session, list[int]] = {}
        lists = list(groups.values())
        for at, nodes in enumerate(groups):
            for node in nodes:
                wanted.setdefault(node, []).append(at)
        alike: dict[tuple[int, ...], list[Session]] = {}
        for node, ats in wanted.items():
            alike.setdefault(tuple(ats), []).append(node)
        for groups_of, same in alike.items():
            merged = [published for at in groups_of for published in lists[at]]
            merged.sort(key=lambda published: published.seq)
            self._send(tuple(same), merged)

    def _turn(self) -> None:
        self._scheduled = False
        self.flush()

    def send(self, node: Session, data: bytes, encoding: Encoding) -> None:
        """Something else that must come behind the messages that were sent before."""
        self._put(node, (data, encoding, 0))

    def forget(self, node: Session) -> None:
        self._crossings.pop(node, None)
        self._slow.discard(node)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._groups.clear()

    def _send(self, nodes: Nodes, messages: list[Published]) -> None:
        for frame in self._frames(messages):
            for node in nodes:
                self._put(node, frame)

    def _frames(self, messages: list[Published]) -> list[Frame]:
        """As few as possible: one for each stretch of one encoding, none much over what a link copies in one go."""
        frames: list[Frame] = []
        start, size, encoding = 0, 0, messages[0].encoding
        for at, published in enumerate(messages):
            if at > start and (published.encoding is not encoding or size + published.size > RUN_BYTES):
                frames.append(self._frame(messages[start:at], encoding))
                start, size, encoding = at, 0, published.encoding
            size += published.size
        frames.append(self._frame(messages[start:], encoding))
        return frames

    def _frame(self, messages: list[Published], encoding: Encoding) -> Frame:
        bodies = [published.message for published in messages]
        publish = InternalPublish(seqs=[published.seq for published in messages], messages=bodies)
        return codec.encode(publish, encoding), encoding, len(messages)

    def _put(self, node: Session, frame: Frame) -> None:
        crossing = self._crossings.get(node)
        if crossing is None:
            if node.closed:
                return
            crossing = self._crossings[node] = Crossing(node, self._statistics)
        if not crossing.send(frame):
            self._slow.add(node)
            self._watch()

    def _watch(self) -> None:
        if self._slow and self._timer is None:
            self._timer = self._loop.call_later(self._pump_s, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        progress = False
        for node in list(self._slow):
            moved, done = self._crossings[node].pump()
            progress = progress or moved
            if done:
                self._slow.discard(node)
        self._pump_s = PUMP_S if progress else min(2 * self._pump_s, PUMP_S_MAX)
        self._watch()

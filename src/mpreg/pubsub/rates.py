"""What is published while somebody looks, counted by the first levels of its topic; free while nobody does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mpreg.pubsub.automaton import Automaton
from mpreg.pubsub.message import Published
from mpreg.pubsub.patterns import MANY, Levels

PREFIXES_MAX: Final = 1_000
"""Of one look; what comes under any other prefix is counted as the rest."""
TOPICS_KNOWN_MAX: Final = 10_000


class _Count:
    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0


class Rates:
    """Pure: `add` what was published, `report` at the end of the look."""

    def __init__(self, pattern: Levels, depth: int) -> None:
        self._wanted = Automaton(pattern)
        self._depth = depth
        self._counts: dict[str, _Count] = {}
        self._rest = _Count()
        self._known: dict[str, _Count | None] = {}

    def add(self, messages: Iterable[Published]) -> None:
        known = self._known
        for published in messages:
            topic = published.message.topic
            count = known[topic] if topic in known else self._find(topic)
            if count is not None:
                count.messages += 1
                count.bytes += len(memoryview(published.message.payload))

    def report(self, seconds: float) -> dict[str, Any]:
        """The busiest first; rates are per second."""
        rows = sorted(self._counts.items(), key=lambda row: (-row[1].messages, row[0]))
        found = {
            "seconds": round(seconds, 3),
            "topics": [{"topic": topic, **_rate(count, seconds)} for topic, count in rows],
        }
        return {**found, "rest": _rate(self._rest, seconds)} if self._rest.messages else found

    def _find(self, topic: str) -> _Count | None:
        """Where a topic counts; None if nobody asked for it."""
        levels = topic.split(".")
        count: _Count | None = None
        if self._wanted.matches(levels):
            prefix = topic if len(levels) <= self._depth else ".".join((*levels[: self._depth], MANY))
            count = self._counts.get(prefix)
            if count is None:
                count = self._rest if len(self._counts) >= PREFIXES_MAX else self._counts.setdefault(prefix, _Count())
        if len(self._known) >= TOPICS_KNOWN_MAX:
            self._known.clear()
        self._known[topic] = count
        return count


def _rate(count: _Count, seconds: float) -> dict[str, float]:
    return {"messages": round(count.messages / seconds, 1), "bytes": round(count.bytes / seconds, 1)}

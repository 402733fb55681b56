"""What was published lately, for those who subscribe late (R-P4): a window by time, count and bytes, the oldest
goes first.

Messages are kept in the order of publishing, and once more by topic, so that a subscriber finds what it wants
without a look at the other topics. Pure: the time is handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final

from mpreg.errors import PubSubError
from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.message import Published
from mpreg.pubsub.patterns import MANY, Levels
from mpreg.pubsub.topic_trie import TooFar, TopicTrie
from mpreg.pubsub.trie import PatternTrie

OVERHEAD_BYTES: Final = 700
"""What a kept message takes in memory besides its bytes; measured with one message a topic, rounded up."""

SCANNED_MAX: Final = 2_000
"""So few messages are looked through as they are: who comes back after a moment need not search all topics, which is
what everybody does at once when a node was unreachable for a moment."""

_SEQ = attrgetter("seq")

_OfTopic = deque[Published]


class Backlog:
    def __init__(self, limits: PubSubLimits) -> None:
        self._window_s = limits.backlog_window_s
        self._messages_max = limits.backlog_messages_max
        self._bytes_max = limits.backlog_bytes_max
        self._visits_max = limits.backlog_visits_max
        self._all: deque[Published] = deque()
        self._by_topic: dict[str, _OfTopic] = {}
        self._trie = TopicTrie[_OfTopic]()
        self._bytes = 0
        self.expired = 0
        self.dropped_by_count = 0
        self.dropped_by_bytes = 0
        self.dropped_up_to = 0
        """The place of the newest message that is not here any more."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def keeps(self) -> bool:
        return self._window_s > 0 and self._messages_max > 0

    def add(self, messages: Iterable[Published]) -> None:
        """The newest, in order; then `trim`."""
        by_topic, size = self._by_topic, 0
        before = len(self._all)
        self._all.extend(messages)
        for at in range(before - len(self._all), 0):
            published = self._all[at]
            topic = published.message.topic
            size += published.size + OVERHEAD_BYTES
            found = by_topic.get(topic)
            if found is None:
                found = by_topic[topic] = deque()
                self._trie.set(topic.split("."), found)
            found.append(published)
        self._bytes += size

    def trim(self, now: float) -> None:
        while len(self._all) > self._messages_max:
            self._drop()
            self.dropped_by_count += 1
        while self._bytes > self._bytes_max:
            self._drop()
            self.dropped_by_bytes += 1
        oldest = now - self._window_s
        while self._all and self._all[0].at < oldest:
            self._drop()
            self.expired += 1

    def matching(self, patterns: Iterable[Levels], since: float, after: int = 0) -> list[Published]:
        """What came at `since` or later, is newer than place `after`, and matches any of the patterns; in order.

        Raises `PUBSUB_LIMIT` for patterns that reach too many topics to be looked for in one turn of the event loop.
        """
        wanted = tuple(patterns)
        if (MANY,) in wanted:
            return self._newest(since, after, len(self._all))
        newest = self._newest(since, after, SCANNED_MAX + 1)
        if len(newest) <= SCANNED_MAX:
            return self._those_matching(newest, wanted)
        return self._by_index(wanted, since, after)

    def _newest(self, since: float, after: int, most: int) -> list[Published]:
        """The last messages, in order, at most so many."""
        found: list[Published] = []
        for published in reversed(self._all):
            if published.at < since or published.seq <= after or len(found) >= most:
                break
            found.append(published)
        found.reverse()
        return found

    def _by_index(self, patterns: tuple[Levels, ...], since: float, after: int) -> list[Published]:
        until_visit = self._trie.visits + self._visits_max
        try:
            topics = {id(found): found for pattern in patterns for found in self._trie.matching(pattern, until_visit)}
        except TooFar:
            raise self._too_far() from None
        chosen: list[Published] = []
        for found in topics.values():
            newest_first: list[Published] = []
            for published in reversed(found):
                if published.at < since or published.seq <= after:
                    break
                newest_first.append(published)
            chosen += reversed(newest_first)
        if len(topics) > 1:
            chosen.sort(key=_SEQ)
        return chosen

    def _those_matching(self, messages: list[Published], patterns: tuple[Levels, ...]) -> list[Published]:
        trie = PatternTrie[bool]()
        for pattern in patterns:
            trie.add(pattern, True)
        known: dict[str, bool] = {}
        chosen: list[Published] = []
        for published in messages:
            topic = published.message.topic
            matches = known.get(topic)
            if matches is None:
                matches = known[topic] = bool(trie.match(topic, topic.split(".")))
                if trie.steps > self._visits_max:
                    raise self._too_far()
            if matches:
                chosen.append(published)
        return chosen

    def _too_far(self) -> PubSubError:
        return PubSubError(
            "PUBSUB_LIMIT",
            "The patterns reach too many topics of the backlog; ask for less of it, or by fewer patterns",
            field="get_backlog",
            limit=self._visits_max,
        )

    def stats(self, now: float) -> dict[str, Any]:
        """The note's `backlog_stats`, and what was dropped."""
        age = now - self._all[0].at if self._all else 0.0
        return {
            "total_messages": len(self._all),
            "oldest_message_age_seconds": round(max(0.0, age), 3),
            "memory_usage_bytes": self._bytes,
            "topics": len(self._by_topic),
            "expired": self.expired,
            "dropped_by_count": self.dropped_by_count,
            "dropped_by_bytes": self.dropped_by_bytes,
        }

    def _drop(self) -> None:
        published = self._all.popleft()
        self._bytes -= published.size + OVERHEAD_BYTES
        self.dropped_up_to = published.seq
        topic = published.message.topic
        found = self._by_topic[topic]
        found.popleft()
        if not found:
            del self._by_topic[topic]
            self._trie.remove(topic.split("."))

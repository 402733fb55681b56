"""Matching within one process: patterns with wildcards, topics that come for the first time or again and again.

Rates are per second of this process's own CPU time, which others that run meanwhile do not change.

A peer is a class with `add(pattern, number)` and `match(topic)`, which lists what matches.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from bench.role import Orders
from mpreg.pubsub import PubSubLimits, parse_pattern
from mpreg.pubsub.exchange import Exchange, Subscription
from mpreg.pubsub.patterns import Levels
from mpreg.pubsub.trie import PatternTrie

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
COLD_TOPICS: Final = 200_000
"""More than any memo holds, one after the other, so that each has been forgotten when it comes again."""
HOT_TOPICS: Final = 1_000
STRETCH: Final = 500
PATTERNS_A_SUBSCRIPTION: Final = 1_000
VOCABULARY: Final = (200, 100, 50, 20)
"""Words of each level with 10,000 patterns; more of them with more patterns."""


def words(count: int) -> list[int]:
    factor = (count / 10_000) ** 0.5
    return [max(size, int(size * factor)) for size in VOCABULARY]


def patterns(count: int, seed: int = 7) -> list[str]:
    """So many different ones of up to four levels, each with a wildcard."""
    draw, sizes = random.Random(seed), words(count)
    found: dict[str, None] = {}
    while len(found) < count:
        levels = [f"{'abcd'[at]}{draw.randrange(size)}" for at, size in enumerate(sizes)]
        kind = draw.random()
        if kind < 0.55:
            levels[draw.randrange(1, 4)] = "*"
        elif kind < 0.75:
            levels[draw.randrange(4)] = "*"
            levels[draw.randrange(1, 4)] = "*"
        else:
            levels[draw.randrange(2, 4) :] = ["#"]
        found[".".join(levels)] = None
    shuffled = list(found)
    draw.shuffle(shuffled)
    return shuffled


def topics(chosen: list[str], count: int, seed: int = 1) -> list[str]:
    """Each matches at least the pattern that it was made from."""
    draw, sizes = random.Random(seed), words(len(chosen))
    found: dict[str, None] = {}
    while len(found) < count:
        levels = draw.choice(chosen).split(".")
        if levels[-1] == "#":
            levels[-1:] = ["*"] * (5 - len(levels))
        made = (
            f"{'abcd'[at]}{draw.randrange(sizes[at])}" if level == "*" else level for at, level in enumerate(levels)
        )
        found[".".join(made)] = None
    return list(found)


class MpregTrie:
    """The trie alone, without a memo."""

    def __init__(self) -> None:
        self._trie = PatternTrie[int]()

    def add(self, pattern: str, number: int) -> None:
        self._trie.add(_parsed(pattern), number)

    def match(self, topic: str) -> list[int]:
        return self._trie.match(topic, topic.split("."))


class MpregExchange:
    """What a node asks for each message: topics are checked, patterns counted, hot topics remembered."""

    def __init__(self) -> None:
        self.exchange: Exchange[None] = Exchange(PubSubLimits())
        self.match: Callable[[str], Any] = self.exchange.match
        self._pending: list[Levels] = []

    def add(self, pattern: str, number: int) -> None:
        self._pending.append(_parsed(pattern))
        if len(self._pending) == PATTERNS_A_SUBSCRIPTION:
            self.exchange.subscribe(Subscription(f"s{number}", number, tuple(self._pending), None))
            self._pending = []


class DictTrie:
    """A dict a node, the usual way; its levels interned, as it takes much more otherwise."""

    def __init__(self) -> None:
        self._root: dict[Any, Any] = {}

    def add(self, pattern: str, number: int) -> None:
        node = self._root
        for level in pattern.split("."):
            node = node.setdefault(sys.intern(level), {})
        node.setdefault(None, []).append(number)

    def match(self, topic: str) -> list[int]:
        nodes, found = [self._root], []
        for level in topic.split("."):
            ahead = []
            for node in nodes:
                if (child := node.get(level)) is not None:
                    ahead.append(child)
                if (child := node.get("*")) is not None:
                    ahead.append(child)
                if (rest := node.get("#")) is not None:
                    found += rest[None]
            nodes = ahead
        for node in nodes:
            found += node.get(None, ())
            if (rest := node.get("#")) is not None:
                found += rest[None]
        return found


def _parsed(pattern: str) -> Levels:
    levels = parse_pattern(pattern)
    assert levels is not None
    return levels


PEERS: Final[dict[str, Callable[[], Any]]] = {"trie": MpregTrie, "exchange": MpregExchange, "dict": DictTrie}


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def rate(match: Callable[[str], Any], asked: list[str], secs: float) -> float:
    clock, count = time.process_time, 0
    stretches: Iterator[list[str]] = itertools.cycle([asked[at : at + STRETCH] for at in range(0, len(asked), STRETCH)])
    begun = clock()
    end = begun + secs
    for stretch in stretches:
        for topic in stretch:
            match(topic)
        count += len(stretch)
        if clock() > end:
            break
    return count / (clock() - begun)


async def match(orders: Orders, peer: str) -> None:
    orders.answer(ready=True)
    async for order in orders:
        chosen = patterns(order["patterns"])
        cold = topics(chosen, COLD_TOPICS)
        gc.collect()
        gc.freeze()
        before, begun = resident(), time.process_time()
        made = PEERS[peer]()
        for number, pattern in enumerate(chosen):
            made.add(pattern, number)
        took = time.process_time() - begun
        size = resident() - before
        hot = cold[:HOT_TOPICS]
        figures = {
            "bytes": (size / len(chosen), "B/pattern"),
            "added": (len(chosen) / took, "patterns/s"),
            "cold": (rate(made.match, cold, order["secs"]), "matches/s"),
        }
        rate(made.match, hot, 0.05)
        figures["hot"] = (rate(made.match, hot, order["secs"]), "matches/s")
        orders.answer(figures=figures)

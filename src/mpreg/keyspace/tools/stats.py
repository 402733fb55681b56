"""How many keys each family has, how long they live and how much memory they take.

Counts are exact. Memory is MEMORY USAGE of a random sample of each family's keys, times their number, with the
95 % error of that estimate; a family that is smaller than the sample is measured whole. (Of a large collection the
server itself looks at a few elements only, which the error does not cover.)
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from mpreg.keyspace.catalog import Catalog
from mpreg.keyspace.tools.record_read import replies
from mpreg.keyspace.tools.walk import NO_TTL, Scope, walk
from mpreg.store import Store

SAMPLE = 200
ELEMENT_SAMPLES = 5
UNKNOWN = "(unknown)"
Z_95 = 1.96


class Sample(msgspec.Struct):
    """A uniform sample of a stream of unknown length: each of all seen is in it with the same probability."""

    size: int
    seen: int = 0
    kept: list[Any] = msgspec.field(default_factory=list)

    def offer(self, value: Any, random: random.Random) -> None:
        self.seen += 1
        if len(self.kept) < self.size:
            self.kept.append(value)
        elif (at := random.randrange(self.seen)) < self.size:
            self.kept[at] = value


class Memory(msgspec.Struct, frozen=True):
    total_bytes: int
    error_bytes: int
    """The true sum is within this of `total_bytes`, 19 times of 20."""
    mean_bytes: float
    sampled: int
    largest: list[tuple[int, bytes]]
    """The largest keys of the sample."""


class FamilyStats(msgspec.Struct):
    name: str
    pattern: str
    type: str
    keys: int = 0
    without_ttl: int = 0
    ttl_min_ms: int | None = None
    ttl_max_ms: int | None = None
    ttls: Sample = msgspec.field(default_factory=lambda: Sample(1_000))
    sample: Sample = msgspec.field(default_factory=lambda: Sample(SAMPLE))
    memory: Memory | None = None

    def ttl_ms(self, share: float) -> int | None:
        """The TTL that this share of the keys with one do not exceed (of a sample, beyond 1,000 keys)."""
        ordered = sorted(self.ttls.kept)
        return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))] if ordered else None


class Census(msgspec.Struct):
    """Grows while the keys are walked."""

    families: dict[str, FamilyStats]
    scanned: int = 0
    gone: int = 0


async def census(
    store: Store,
    catalog: Catalog,
    scope: Scope,
    *,
    sample: int = SAMPLE,
    keys_per_s: float | None = None,
    random: random.Random | None = None,
) -> AsyncIterator[Census]:
    """The counts so far, after each page; the same object each time. Declared families without a key are there too."""
    chance = random if random is not None else _new_random()
    found = Census(
        {
            one.full_name: FamilyStats(one.full_name, one.shown, one.type, sample=Sample(sample))
            for one in catalog
            if scope.families is None or one.full_name in scope.families
        }
    )
    async for page in walk(store, catalog, scope, keys_per_s=keys_per_s):
        found.gone += page.gone
        for walked in page.found:
            name = walked.match.declaration.full_name if walked.match is not None else UNKNOWN
            family = found.families.get(name)
            if family is None:
                family = found.families[name] = FamilyStats(name, "", "", sample=Sample(sample))
            _count(family, walked.key, walked.ttl_ms, chance)
            found.scanned += 1
        yield found


def _new_random() -> random.Random:
    return random.Random()


def _count(family: FamilyStats, key: bytes, ttl_ms: int, chance: random.Random) -> None:
    family.keys += 1
    family.sample.offer(key, chance)
    if ttl_ms == NO_TTL:
        family.without_ttl += 1
        return
    family.ttls.offer(ttl_ms, chance)
    family.ttl_min_ms = ttl_ms if family.ttl_min_ms is None else min(family.ttl_min_ms, ttl_ms)
    family.ttl_max_ms = ttl_ms if family.ttl_max_ms is None else max(family.ttl_max_ms, ttl_ms)


async def measure(store: Store, family: FamilyStats, *, largest: int = 5) -> Memory:
    """Asks for the memory of the sampled keys, and estimates that of all."""
    sizes: list[tuple[int, bytes]] = []
    for at in range(0, len(family.sample.kept), 500):
        keys = family.sample.kept[at : at + 500]
        asked = [store.send(b"MEMORY", b"USAGE", key, b"SAMPLES", ELEMENT_SAMPLES) for key in keys]
        answers = await replies(asked)
        sizes += [(int(size), key) for size, key in zip(answers, keys, strict=True) if size is not None]
    total, error = estimate([size for size, _ in sizes], family.keys)
    mean = sum(size for size, _ in sizes) / len(sizes) if sizes else 0.0
    top = sorted(sizes, key=lambda one: one[0], reverse=True)[:largest]
    family.memory = Memory(round(total), math.ceil(error), mean, len(sizes), top)
    return family.memory


def estimate(sizes: list[int], population: int) -> tuple[float, float]:
    """The sum over the whole population from a sample without replacement, and its 95 % error."""
    count = len(sizes)
    if not count:
        return 0.0, 0.0
    mean = sum(sizes) / count
    if count >= population:
        return mean * count, 0.0
    if count == 1:
        return mean * population, mean * population
    variance = sum((size - mean) ** 2 for size in sizes) / (count - 1)
    finite = (population - count) / (population - 1)
    return mean * population, Z_95 * population * math.sqrt(variance / count * finite)

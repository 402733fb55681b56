"""What the cache of one node counts, by namespace and minute; and `cache-analytics` made of it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from mpreg.wire.cache import CacheStatistics, CostSavings, LevelPerformance, OperationCounts

MINUTES_KEPT: Final = 24 * 60
NAMESPACES_MAX: Final = 1_000
"""The one that was not used for longest is forgotten first."""


class Minute:
    __slots__ = ("counts", "evictions", "lookup_s", "minute", "saved_ms")

    def __init__(self, minute: int) -> None:
        self.minute = minute
        self.counts: dict[str, int] = {}
        self.evictions: dict[str, int] = {}
        self.lookup_s = 0.0
        self.saved_ms = 0.0


class Analytics:
    """Counts are `get`, `put`, …, and `L1`, `L2`, `L3`, `L4`, `miss` of gets."""

    def __init__(self, clock: Callable[[], float], usd_per_compute_hour: float = 0.0) -> None:
        self._clock = clock
        self._usd_per_ms = usd_per_compute_hour / 3_600_000
        self._minutes: OrderedDict[str, deque[Minute]] = OrderedDict()
        self._ever: dict[str, list[int]] = {}

    def count(self, namespace: str, what: str, by: int = 1) -> None:
        counts = self._now(namespace).counts
        counts[what] = counts.get(what, 0) + by

    def looked_up(self, namespace: str, level: str | None, seconds: float, cost_ms: float) -> None:
        """A get: where it was found (None: nowhere), how long it took, what it had cost to compute."""
        minute = self._now(namespace)
        counts = minute.counts
        counts["get"] = counts.get("get", 0) + 1
        where = level or "miss"
        counts[where] = counts.get(where, 0) + 1
        minute.lookup_s += seconds
        ever = self._ever[namespace]
        ever[0] += 1
        if level is not None:
            minute.saved_ms += cost_ms
            ever[1] += 1

    def evicted(self, namespace: str, why: str) -> None:
        evictions = self._now(namespace).evictions
        evictions[why] = evictions.get(why, 0) + 1

    def efficiency(self, namespace: str) -> float:
        """Hits of all gets so far."""
        gets, hits = self._ever.get(namespace, (0, 0))
        return hits / gets if gets else 0.0

    def statistics(self, namespace: str | None, start: float, end: float) -> CacheStatistics:
        """Of whole minutes."""
        total = self._sum(namespace, int(start // 60), int(end // 60))
        counts, gets = total.counts, max(1, total.counts.get("get", 0))
        hits = sum(counts.get(level, 0) for level in ("L1", "L2", "L3", "L4"))
        return CacheStatistics(
            operations=OperationCounts(
                get_requests=counts.get("get", 0),
                put_requests=counts.get("put", 0),
                delete_requests=counts.get("delete", 0),
                invalidate_requests=counts.get("invalidate", 0),
                atomic_requests=counts.get("atomic", 0),
                structure_requests=counts.get("structure", 0),
                namespace_requests=counts.get("namespace", 0),
            ),
            performance=LevelPerformance(
                hit_ratio_l1=counts.get("L1", 0) / gets,
                hit_ratio_l2=counts.get("L2", 0) / gets,
                hit_ratio_l3=counts.get("L3", 0) / gets,
                miss_ratio=counts.get("miss", 0) / gets,
                avg_lookup_time_ms=total.lookup_s * 1000 / gets,
                cache_efficiency=hits / gets,
            ),
            cost_savings=CostSavings(
                computation_time_saved_ms=total.saved_ms,
                network_requests_avoided=counts.get("L1", 0) + counts.get("L2", 0),
                estimated_cost_savings_usd=total.saved_ms * self._usd_per_ms,
            ),
            evictions=total.evictions,
        )

    def report(self) -> dict[str, Any]:
        """For `mpreg.stats`."""
        total = self._sum(None, 0, 2**40)
        return {"namespaces": len(self._minutes), **total.counts, "evictions": total.evictions}

    def _now(self, namespace: str) -> Minute:
        minute = int(self._clock() // 60)
        kept = self._minutes.get(namespace)
        if kept is None:
            if len(self._minutes) >= NAMESPACES_MAX:
                forgotten, _ = self._minutes.popitem(last=False)
                del self._ever[forgotten]
            kept = self._minutes[namespace] = deque(maxlen=MINUTES_KEPT)
            self._ever[namespace] = [0, 0]
        if not kept or kept[-1].minute != minute:
            self._minutes.move_to_end(namespace)
            kept.append(Minute(minute))
        return kept[-1]

    def _sum(self, namespace: str | None, first: int, last: int) -> Minute:
        total = Minute(0)
        wanted = self._minutes.values() if namespace is None else [self._minutes.get(namespace, deque())]
        for kept in wanted:
            for minute in kept:
                if first <= minute.minute <= last:
                    total.lookup_s += minute.lookup_s
                    total.saved_ms += minute.saved_ms
                    for into, of in ((total.counts, minute.counts), (total.evictions, minute.evictions)):
                        for what, n in of.items():
                            into[what] = into.get(what, 0) + n
        return total

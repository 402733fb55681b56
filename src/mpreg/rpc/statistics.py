"""Counts of requests, and how long they took, cheap enough to be always on."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

_STEPS: Final = 8
"""Buckets a doubling: a percentile is at most a twelfth too high."""
_BOUNDS_S: Final = [1e-6 * 2 ** (step / _STEPS) for step in range(37 * _STEPS)]
"""The upper end of each bucket: from 1 microsecond to more than the longest timeout."""


class Latencies:
    """A histogram with buckets that grow with the value."""

    __slots__ = ("_counts", "sum_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_S) + 1)
        self.sum_s = 0.0

    @property
    def count(self) -> int:
        return sum(self._counts)

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def percentile_ms(self, fraction: float) -> float:
        """The upper end of the bucket that this fraction of the values does not exceed."""
        wanted = fraction * self.count
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return _BOUNDS_S[min(bucket, len(_BOUNDS_S) - 1)] * 1e3
        return 0.0

    def mean_ms(self) -> float:
        count = self.count
        return self.sum_s / count * 1e3 if count else 0.0


class RpcStatistics:
    """Named as in the note's `metrics` message."""

    __slots__ = ("failed_requests", "latencies", "successful_requests")

    def __init__(self) -> None:
        self.successful_requests = 0
        self.failed_requests = 0
        self.latencies = Latencies()

    def report(self) -> dict[str, Any]:
        return {
            "total_requests": self.successful_requests + self.failed_requests,
            "successful_requests": self.successful_requests,
            "failed_requests": self.failed_requests,
            "avg_latency_ms": round(self.latencies.mean_ms(), 3),
            "p95_latency_ms": round(self.latencies.percentile_ms(0.95), 3),
            "p99_latency_ms": round(self.latencies.percentile_ms(0.99), 3),
        }

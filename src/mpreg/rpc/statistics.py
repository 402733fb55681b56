"""Counts of requests, and how long they took, cheap enough to be always on."""

from __future__ import annotations

from typing import Any

_STEPS = 8
"""Buckets a doubling: a percentile is at most 1/8 off."""


class Latencies:
    """A histogram of microseconds with buckets that grow with the value."""

    def __init__(self) -> None:
        self._counts = [0] * (48 * _STEPS)
        self.count = 0
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        us = int(seconds * 1e6)
        if us < _STEPS:
            bucket = max(0, us)
        else:
            bits = us.bit_length()
            bucket = min((bits - 3) * _STEPS + (us >> (bits - 4)) - _STEPS, len(self._counts) - 1)
        self._counts[bucket] += 1
        self.count += 1
        self.sum_s += seconds

    def percentile_ms(self, fraction: float) -> float:
        """The upper end of the bucket that this fraction of the values does not exceed."""
        wanted = fraction * self.count
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return _upper_us(bucket) / 1e3
        return 0.0

    def mean_ms(self) -> float:
        return self.sum_s / self.count * 1e3 if self.count else 0.0


def _upper_us(bucket: int) -> int:
    if bucket < _STEPS:
        return bucket + 1
    doubling, step = divmod(bucket, _STEPS)
    return (_STEPS + step + 1) << (doubling - 1)


class RpcStatistics:
    """Named as in the note's `metrics` message."""

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
            "p95_latency_ms": self.latencies.percentile_ms(0.95),
            "p99_latency_ms": self.latencies.percentile_ms(0.99),
        }

"""What is counted by namespace and minute, and the statistics made of it."""

from __future__ import annotations

import pytest

from mpreg.cache import analytics as module
from mpreg.cache.analytics import Analytics


class Clock:
    now = 600.0

    def __call__(self) -> float:
        return self.now


def test_ratios_savings_and_evictions_of_a_period() -> None:
    clock = Clock()
    analytics = Analytics(clock, usd_per_compute_hour=3.6)
    for level, cost in (("L1", 1000.0), ("L1", 1000.0), ("L2", 500.0), (None, 0.0)):
        analytics.looked_up("a", level, 0.001, cost)
    analytics.count("a", "put")
    analytics.evicted("a", "capacity")
    clock.now += 60
    analytics.looked_up("a", "L3", 0.004, 100.0)
    analytics.looked_up("b", None, 0.001, 0.0)
    analytics.count("b", "delete", 2)

    first = analytics.statistics("a", 600, 659)
    assert (first.operations.get_requests, first.operations.put_requests) == (4, 1)
    performance = first.performance
    assert (performance.hit_ratio_l1, performance.hit_ratio_l2, performance.hit_ratio_l3) == (0.5, 0.25, 0)
    assert (performance.miss_ratio, performance.cache_efficiency) == (0.25, 0.75)
    assert performance.avg_lookup_time_ms == pytest.approx(1.0)
    assert first.cost_savings.computation_time_saved_ms == 2500
    assert first.cost_savings.network_requests_avoided == 3
    assert first.cost_savings.estimated_cost_savings_usd == pytest.approx(0.0025)
    assert first.evictions == {"capacity": 1}

    everything = analytics.statistics(None, 0, 10_000)
    assert everything.operations.get_requests == 6
    assert everything.operations.delete_requests == 2
    assert analytics.statistics("a", 0, 599).operations.get_requests == 0
    assert analytics.statistics("nobody", 0, 10_000).performance.miss_ratio == 0
    assert analytics.efficiency("a") == pytest.approx(0.8)
    assert analytics.efficiency("nobody") == 0


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMESPACES_MAX", 3)
    clock = Clock()
    analytics = Analytics(clock)
    for n in range(10):
        analytics.count(str(n), "get")
    assert analytics.report() == {"namespaces": 3, "get": 3, "evictions": {}}
    for _ in range(module.MINUTES_KEPT + 10):
        clock.now += 60
        analytics.count("9", "get")
    assert analytics.statistics("9", 0, 1e9).operations.get_requests == module.MINUTES_KEPT

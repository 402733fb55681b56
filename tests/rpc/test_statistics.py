from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.rpc.statistics import Latencies


@given(st.lists(st.floats(1e-6, 86_400), min_size=1), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_at_most_a_tenth_above_the_exact_one(seconds: list[float], fraction: float) -> None:
    latencies = Latencies()
    for value in seconds:
        latencies.add(value)
    exact_ms = sorted(seconds)[math.ceil(fraction * len(seconds)) - 1] * 1e3
    assert exact_ms * 0.9999 <= latencies.percentile_ms(fraction) <= exact_ms * 1.1
    assert latencies.count == len(seconds)
    assert latencies.mean_ms() == pytest.approx(sum(seconds) / len(seconds) * 1e3)


def test_nothing_measured_is_zero_and_extremes_have_a_place() -> None:
    latencies = Latencies()
    assert latencies.percentile_ms(0.99) == latencies.mean_ms() == 0
    latencies.add(0)
    latencies.add(1e9)
    assert latencies.count == 2
    assert latencies.percentile_ms(0.5) == pytest.approx(0.001)

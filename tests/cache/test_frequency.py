"""The sketch never says less than it should, and seldom more."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mpreg.cache.frequency import COUNT_MAX, SAMPLES_A_KEY, Frequency


@given(st.lists(st.integers(0, 40).map(str), max_size=150))
def test_an_estimate_is_never_below_the_count(names: list[str]) -> None:
    frequency = Frequency(16)
    for name in names:
        frequency.add(name.encode())
    for name, count in Counter(names).items():
        assert frequency.of(name.encode()) >= min(count, COUNT_MAX)


def test_an_estimate_is_seldom_above_the_count() -> None:
    frequency = Frequency(10_000)
    keys = [b"key-%d" % n for n in range(10_000)]
    for key in keys:
        frequency.add(key)
    assert sum(frequency.of(key) > 1 for key in keys) < 400
    assert sum(frequency.of(b"other-%d" % n) > 0 for n in range(10_000)) < 1_500


def test_what_was_asked_for_long_ago_is_forgotten() -> None:
    frequency = Frequency(16)
    for _ in range(12):
        frequency.add(b"once loved")
    for n in range(16 * SAMPLES_A_KEY * 4):
        frequency.add(b"%d" % n)
    assert frequency.of(b"once loved") <= 12 // 4


def test_it_takes_no_more_memory_for_more_keys() -> None:
    frequency = Frequency(100)
    before = len(frequency._counters)
    for n in range(10_000):
        frequency.add(b"%d" % n)
    assert len(frequency._counters) == before <= 2 * 8 * 100

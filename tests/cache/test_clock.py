"""A node's idea of the store's clock: never behind it, ahead by no more than an answer took."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpreg.cache.clock import HEARD_S, StoreClock


class Now:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@given(st.lists(st.tuples(st.floats(0.0001, 2), st.floats(0.0001, 2), st.floats(0, 30)), min_size=1, max_size=20))
def test_it_is_never_behind_and_the_quickest_answer_counts(answers: list[tuple[float, float, float]]) -> None:
    now, store_ahead_s, quickest = Now(), 1234.5, 10.0
    clock, steady_ms = StoreClock(now), 0
    for there_s, back_s, pause_s in answers:
        sent = now.seconds
        now.seconds += there_s
        store_ms = int((now.seconds + store_ahead_s) * 1000)
        now.seconds += back_s
        clock.heard(store_ms, sent)
        quickest = min(quickest, there_s)
        assert clock.steady_ms() >= steady_ms
        steady_ms = clock.steady_ms()
        true_ms = (now.seconds + store_ahead_s) * 1000
        assert true_ms - 1 <= clock.now_ms() <= true_ms + 2_000 + 2
        now.seconds += pause_s


def test_an_old_answer_counts_no_more() -> None:
    now = Now()
    clock = StoreClock(now)
    assert not clock.is_known
    clock.heard(5_000_000, now.seconds)
    assert clock.is_known
    assert clock.is_recent
    now.seconds += HEARD_S
    assert not clock.is_recent
    clock.heard(5_000_000 + 61_000, now.seconds)  # the store's clock runs faster than ours
    assert clock.now_ms() == 5_061_001

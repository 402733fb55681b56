from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpreg.keyspace.tools.pace import Pace


def test_without_a_rate_there_is_no_pause() -> None:
    assert Pace(None, 0.0).after(1_000_000, 0.0) == 0.0


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 3)), max_size=50), st.integers(1, 1000))
def test_no_more_than_the_rate_and_what_one_second_saves(batches: list[tuple[int, float]], rate: int) -> None:
    now, done, pace = 0.0, 0, Pace(rate, 0.0)
    for keys, work_s in batches:
        now += work_s
        done += keys
        now += pace.after(keys, now)
        assert done <= rate * (now + 1.0) + 1e-6


def test_work_that_is_slower_than_the_rate_never_waits() -> None:
    pace = Pace(100, 0.0)
    assert [pace.after(100, float(second)) for second in range(1, 10)] == [0.0] * 9

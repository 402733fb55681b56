from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.transport import Backoff, Itinerary

unit = st.floats(0, 1)


@given(st.lists(unit), st.floats(0.001, 10), st.floats(1, 10), st.floats(10, 100))
def test_a_delay_lies_between_nothing_and_an_exponential_ceiling(
    randoms: list[float], base: float, factor: float, top: float
) -> None:
    backoff = Backoff(base, factor, top)
    for attempt, random in enumerate(randoms):
        ceiling = min(top, base * factor**attempt)
        assert backoff.ceiling_s == pytest.approx(ceiling)
        assert backoff.next_s(random) == pytest.approx(random * ceiling)
    backoff.reset()
    assert backoff.ceiling_s == pytest.approx(base)


def test_it_never_overflows() -> None:
    backoff = Backoff()
    for _ in range(5000):
        backoff.next_s(1.0)
    assert backoff.next_s(1.0) == backoff.max_s


@pytest.mark.parametrize(("base", "factor", "top"), [(0, 2, 1), (2, 2, 1), (1, 0.5, 1), (-1, 2, 1)])
def test_figures_without_sense_are_refused(base: float, factor: float, top: float) -> None:
    with pytest.raises(ValueError, match="backoff"):
        Backoff(base, factor, top)


def test_a_round_tries_every_address_at_once_and_then_pauses() -> None:
    itinerary = Itinerary(["a", "b"], Backoff(1, 2, 10))
    seen = []
    for _ in range(5):
        seen.append(itinerary.next(1.0))
        itinerary.failed()
    assert seen == [("a", 0), ("b", 0), ("a", 1), ("b", 0), ("a", 2)]


def test_the_address_that_worked_is_first_again() -> None:
    itinerary = Itinerary(["a", "b"], Backoff(1, 2, 10))
    itinerary.failed()
    itinerary.connected()
    itinerary.lasted()
    assert itinerary.next(1.0) == ("b", 0)


def test_a_peer_that_hangs_up_at_once_is_not_dialled_in_a_circle() -> None:
    itinerary = Itinerary(["a"], Backoff(1, 2, 10))
    pauses = []
    for _ in range(4):
        pauses.append(itinerary.next(1.0)[1])
        itinerary.connected()
        itinerary.failed()
    assert pauses == [0, 1, 2, 4]


def test_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="address"):
        Itinerary([], Backoff())

import math

import pytest

from mpreg.apps.muf import ttl


@pytest.mark.parametrize("seconds", [0, -1, 0.0, math.nan, math.inf, True, "10", None, 0.0001, 10**12])
def test_a_ttl_that_the_store_would_refuse_is_refused_here(seconds: object) -> None:
    with pytest.raises(ValueError, match="ttl"):
        ttl.check(seconds)


def test_only_state_may_live_for_ever() -> None:
    assert ttl.Ttls(keep=None).keep is None
    with pytest.raises(ValueError, match="REQ"):
        ttl.Ttls(req=None)  # type: ignore[arg-type]


def test_the_defaults_are_those_of_the_note() -> None:
    assert (ttl.Ttls().req, ttl.Ttls().res, ttl.Ttls().keep) == (10, 30, 86_400)


@pytest.mark.parametrize(
    ("seconds", "option"),
    [(10, (b"EX", 10)), (2.0, (b"EX", 2)), (1.5, (b"PX", 1500)), (0.001, (b"PX", 1)), (0.0015, (b"PX", 2))],
)
def test_whole_seconds_go_by_ex_and_fractions_by_px(seconds: float, option: tuple[bytes, int]) -> None:
    assert ttl.expiry(seconds) == option


def test_a_ttl_that_no_float_can_hold_is_refused_like_any_other() -> None:
    with pytest.raises(ValueError, match="ttl"):
        ttl.check(10**400)

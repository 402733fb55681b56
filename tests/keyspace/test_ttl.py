"""How long a key lives: what a write sets, and how long is too long."""

from __future__ import annotations

import datetime
import math
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.errors import KeyspaceError
from mpreg.keyspace import Ttl
from mpreg.keyspace.ttl import next_midnight

ZONES = ["UTC", "Asia/Tokyo", "Europe/Berlin", "America/St_Johns", "Africa/Cairo"]


@given(st.sampled_from(ZONES), st.floats(0, 4e9))
def test_the_next_midnight_is_the_start_of_the_next_day_there(zone: str, now: float) -> None:
    midnight = next_midnight(now, zone)
    today = datetime.datetime.fromtimestamp(now, ZoneInfo(zone)).date()
    day = datetime.datetime.fromtimestamp(midnight, ZoneInfo(zone)).date()
    assert now < midnight <= now + Ttl(until="midnight").longest_s
    assert day == today + datetime.timedelta(days=1)
    # One moment earlier it is still today, clocks set back or not.
    assert datetime.datetime.fromtimestamp(math.nextafter(midnight, 0) - 1e-3, ZoneInfo(zone)).date() <= today


def test_what_a_write_sets() -> None:
    assert Ttl(seconds=1.5).expires_in_ms(0.0) == 1500
    assert Ttl(seconds=10, max_seconds=60).expires_in_ms(0.0, 60) == 60_000
    assert Ttl(until="midnight").expires_in_ms(86_400 - 1.0) == 1000
    assert Ttl(until="midnight").expires_in_ms(86_400.0) == 86_400_000
    assert Ttl(seconds=1e-9).expires_in_ms(0.0) == 1, "never 0, which the store refuses"


@pytest.mark.parametrize("chosen", [0, -1, 11, math.nan, math.inf, True, "5"])
def test_a_ttl_outside_the_declared_one_is_refused(chosen: Any) -> None:
    with pytest.raises(KeyspaceError) as caught:
        Ttl(seconds=10).expires_in_ms(0.0, chosen)
    assert (caught.value.code, caught.value.details["limit"]) == ("KEYSPACE_INVALID_TTL", 10.0)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"seconds": 1, "until": "midnight"},
        {"seconds": 0},
        {"seconds": math.inf},
        {"seconds": True},
        {"seconds": 10, "max_seconds": 9},
        {"until": "midnight", "max_seconds": 9},
        {"until": "midnight", "zone": "Mars/Olympus"},
        {"until": "midnight", "zone": "../etc/passwd"},
    ],
)
def test_a_ttl_that_contradicts_itself_can_t_be_declared(given: dict[str, Any]) -> None:
    with pytest.raises(KeyspaceError) as caught:
        Ttl(**given)
    assert (caught.value.code, caught.value.details["field"]) == ("KEYSPACE_INVALID_DECLARATION", "ttl")

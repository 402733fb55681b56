"""Cron expressions against looking at every minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from mpreg.errors import QueueError
from mpreg.queues.cron import Cron, instants, next_after, parse_cron, parse_zone

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo")


def field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    spans = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.tuples(st.one_of(st.just("*"), spans), st.integers(1, most)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    one = st.one_of(number.map(str), spans, steps)
    return st.one_of(st.just("*"), st.lists(one, min_size=1, max_size=3).map(",".join))


expressions = st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)).map(" ".join)


def fits(cron: Cron, wall: datetime) -> bool:
    day, weekday = wall.day in cron.days, wall.isoweekday() % 7 in cron.weekdays
    return (
        wall.minute in cron.minutes
        and wall.hour in cron.hours
        and wall.month in cron.months
        and ((day or weekday) if cron.either else (day and weekday))
    )


def naive(cron: Cron, after: datetime, zone: ZoneInfo, days: int) -> float | None:
    """Every minute on the wall, one by one."""
    wall = after.astimezone(zone).replace(tzinfo=None, second=0, microsecond=0) - timedelta(days=1)
    found = []
    for _ in range((days + 2) * 1440):
        if fits(cron, wall):
            found += [at for at in instants(cron, wall, zone) if at > after.timestamp()]
        wall += timedelta(minutes=1)
    return min(found, default=None)


@settings(deadline=None, max_examples=25)
@given(
    expressions,
    st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)),
    st.sampled_from(ZONES),
)
def test_the_next_time_is_the_first_minute_that_fits(text: str, start: datetime, zone_name: str) -> None:
    cron, zone, after = parse_cron(text), ZoneInfo(zone_name), start.replace(tzinfo=UTC)
    found = next_after(cron, after.timestamp(), zone)
    assert found > after.timestamp()
    assert found % 60 == 0
    expected = naive(cron, after, zone, 3)
    if expected is not None and expected < after.timestamp() + 3 * 86_400:
        assert found == expected
    else:
        assert found > after.timestamp() + 2 * 86_400


@pytest.mark.parametrize("zone_name", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("text", ["30 2 * * *", "*/7 * * * *", "15 1-3 * * *", "0 0 * * *"])
def test_days_on_which_the_clocks_are_moved(text: str, zone_name: str) -> None:
    cron, zone = parse_cron(text), ZoneInfo(zone_name)
    for month, day in ((3, 29), (4, 5), (10, 4), (10, 25)):
        after = datetime(2026, month, day, tzinfo=UTC) - timedelta(hours=20)
        for _ in range(40):
            found = next_after(cron, after.timestamp(), zone)
            assert found == naive(cron, after, zone, 2)
            after = datetime.fromtimestamp(found, UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 3 * * *", "2026-11-20 03:00"),
        ("@hourly", "2026-11-19 21:00"),
        ("@weekly", "2026-11-22 00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("0 0 1 jan sun", "2026-11-22 00:00"),
        ("0 0 * * 7", "2026-11-22 00:00"),
        ("*/15 9-17 * * MON-FRI", "2026-11-20 09:00"),
        ("5/20 * * * *", "2026-11-19 20:45"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    cron = parse_cron(text)
    if text == "0 0 1 jan sun":
        cron = parse_cron("0 0 1 * sun")
    after = datetime(2026, 11, 19, 20, 30, tzinfo=UTC)
    found = datetime.fromtimestamp(next_after(cron, after.timestamp(), ZoneInfo("UTC")), UTC)
    assert found.strftime("%Y-%m-%d %H:%M") == expected


WRONG = """\
* * * *; 60 * * * *; * 24 * * *; * * 0 * *; * * * 13 *; * * * * 8; 5-1 * * * *; */0 * * * *; a * * * *; * * 30 2 *;
1,,2 * * * *; -1 * * * *; @never; ١ * * * *"""


@pytest.mark.parametrize("text", ["", "* " * 300, *WRONG.split(";")])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(QueueError) as refused:
        parse_cron(text)
    assert (refused.value.code, refused.value.details["field"]) == ("QUEUE_INVALID", "cron")


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../../etc/passwd", "a\0b"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(QueueError) as refused:
        parse_zone(name)
    assert refused.value.details["field"] == "timezone"

"""When a cron expression says: five fields, `minute hour day month weekday`, in a time zone. Pure; the time comes in.

    0 3 * * *          every day at 3:00          */15 9-17 * * mon-fri   each quarter of an hour at work
    30 6 1,15 * *      twice a month              @hourly @daily @weekly @monthly @yearly

If both day and weekday are given, either will do, as in every cron. A wall time that a zone skips (the clocks go
forward) is as much later as the clocks went; one that comes twice is taken the first time, but for an expression of
every hour, which counts real hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from mpreg.queues.names import invalid

YEARS_MAX: Final = 9
"""A 29th of February may be eight years away."""
CLOCKS_H: Final = 3
"""No zone moves its clocks by more at once."""
TEXT_MAX: Final = 200

ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = {
    name: n
    for n, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
_DAYS: Final = {name: n for n, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_FIELDS: Final[tuple[tuple[str, int, int, dict[str, int]], ...]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _DAYS),
)
_HOURS: Final = frozenset(range(24))


class Cron(msgspec.Struct, frozen=True):
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    either: bool
    """Day and weekday are both given: one of them is enough."""


def parse_cron(text: str) -> Cron:
    """Raises `QUEUE_INVALID`, which says what is wrong with which field; also for what never happens."""
    if len(text) > TEXT_MAX:
        raise invalid("cron", f"has over {TEXT_MAX} characters", limit=TEXT_MAX)
    words = ALIASES.get(text.strip().lower(), text).lower().split()
    if len(words) != len(_FIELDS):
        raise invalid("cron", f"has five fields (minute hour day month weekday), not {len(words)}: {text!r:.100}")
    minutes, hours, days, months, weekdays = (_values(word, *field) for word, field in zip(words, _FIELDS, strict=True))
    cron = Cron(
        minutes,
        hours,
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        not words[2].startswith("*") and not words[4].startswith("*"),
    )
    if next(_days(cron, datetime(2000, 1, 1)), None) is None:
        raise invalid("cron", f"never happens: {text!r:.100}")
    return cron


def parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise invalid("timezone", f"no time zone is called {name!r:.100}") from None


def next_after(cron: Cron, after_s: float, zone: ZoneInfo) -> float:
    """The first time after `after_s`, both in seconds since 1970."""
    wall = datetime.fromtimestamp(after_s, UTC).astimezone(zone).replace(tzinfo=None)
    start = (wall - timedelta(hours=CLOCKS_H)).replace(second=0, microsecond=0)
    best: float | None = None
    last = datetime.max
    for candidate in walls(cron, start):
        if candidate > last:
            break  # whatever comes now is later, whichever way the clocks go
        for at in instants(cron, candidate, zone):
            if at > after_s and (best is None or at < best):
                best = at
                last = min(last, candidate + timedelta(hours=2 * CLOCKS_H))
    assert best is not None, "`parse_cron` refuses what never happens"
    return best


def instants(cron: Cron, wall: datetime, zone: ZoneInfo) -> set[float]:
    """What a wall time means."""
    folds = (0, 1) if cron.hours == _HOURS else (0,)
    return {wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in folds}


def walls(cron: Cron, start: datetime) -> Iterator[datetime]:
    """The wall times of a cron expression from `start` on, in order."""
    hours, minutes = sorted(cron.hours), sorted(cron.minutes)
    for day in _days(cron, start.replace(hour=0, minute=0)):
        for hour in hours:
            for minute in minutes:
                wall = day.replace(hour=hour, minute=minute)
                if wall >= start:
                    yield wall


def _days(cron: Cron, day: datetime) -> Iterator[datetime]:
    end = day.year + YEARS_MAX
    while day.year < end:
        if day.month not in cron.months:
            day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
            continue
        by_day, by_weekday = day.day in cron.days, day.isoweekday() % 7 in cron.weekdays
        if (by_day or by_weekday) if cron.either else (by_day and by_weekday):
            yield day
        day += timedelta(days=1)


def _values(word: str, name: str, least: int, most: int, names: dict[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, name, 1, most, {}) if slash else 1
        if span == "*":
            first, last = least, most if name != "weekday" else 6
        else:
            low, dash, high = span.partition("-")
            first = _number(low, name, least, most, names)
            last = _number(high, name, least, most, names) if dash else (most if slash else first)
            if last < first:
                raise invalid("cron", f"{name}: {span!r:.40} ends before it begins")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _number(text: str, name: str, least: int, most: int, names: dict[str, int]) -> int:
    if text in names:
        return names[text]
    if not (text.isascii() and text.isdigit() and len(text) < 4 and least <= int(text) <= most):
        raise invalid("cron", f"{name}: {text!r:.40} is not {least} to {most}")
    return int(text)

"""How long a key lives: what a write sets, how long is too long, and whether a key without an end is a fault."""

from __future__ import annotations

import datetime
import math
import zoneinfo
from typing import Literal

import msgspec

from mpreg.errors import KeyspaceError

SECONDS_MAX = 100 * 366 * 86_400.0  # what is meant to live longer has no TTL
Renew = Literal["write", "create"]


class Ttl(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A number of seconds, or the next midnight in a zone.

    `renew="write"`: every write sets the expiry anew; "create": only a key that has none gets one, so a counter's
    window ends when it ends. `required=False`: a key without an expiry is not a fault.
    """

    seconds: float | None = None
    until: Literal["midnight"] | None = None
    zone: str = "UTC"
    max_seconds: float | None = None
    required: bool = True
    renew: Renew = "write"

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.until is None):
            raise _undeclarable("a TTL has either `seconds` or `until`")
        for name, value in (("seconds", self.seconds), ("max_seconds", self.max_seconds)):
            if value is not None and not is_seconds(value):
                raise _undeclarable(f"{name} is a number over 0 and at most {SECONDS_MAX:.0f}, not {value!r}")
            if value is not None:
                msgspec.structs.force_setattr(self, name, float(value))  # so that 30 and 30.0 are one declaration
        if self.until is not None:
            if self.max_seconds is not None:
                raise _undeclarable("a TTL until midnight has no max_seconds")
            try:
                zoneinfo.ZoneInfo(self.zone)
            except (zoneinfo.ZoneInfoNotFoundError, ValueError):
                raise _undeclarable(f"there is no time zone {self.zone!r:.60}") from None
        if self.seconds is not None and self.max_seconds is not None and self.max_seconds < self.seconds:
            raise _undeclarable(f"max_seconds {self.max_seconds:g} is under seconds {self.seconds:g}")

    @property
    def longest_s(self) -> float:
        """A key that has longer to live than this was not written as declared."""
        if self.until is not None:
            return 25 * 3600.0  # the day on which clocks are set back
        assert self.seconds is not None
        return self.max_seconds if self.max_seconds is not None else self.seconds

    def expires_in_ms(self, now_s: float, chosen_s: float | None = None) -> int:
        """Milliseconds from `now_s` (seconds since 1970) for a write now; `chosen_s` is a caller's own TTL."""
        if chosen_s is not None:
            if not is_seconds(chosen_s) or chosen_s > self.longest_s:
                raise KeyspaceError(
                    "KEYSPACE_INVALID_TTL",
                    f"a TTL here is over 0 and at most {self.longest_s:g} s, not {chosen_s!r:.40}",
                    field="ttl_s",
                    limit=self.longest_s,
                )
            return max(1, math.ceil(chosen_s * 1000))
        if self.seconds is not None:
            return max(1, math.ceil(self.seconds * 1000))
        return max(1, math.ceil((next_midnight(now_s, self.zone) - now_s) * 1000))


def ttl_of(given: float | Ttl | None) -> Ttl | None:
    return Ttl(seconds=given) if isinstance(given, int | float) else given


def next_midnight(now_s: float, zone: str) -> float:
    """Seconds since 1970 of the next midnight in `zone`, the first one after `now_s`."""
    there = zoneinfo.ZoneInfo(zone)
    tomorrow = datetime.datetime.fromtimestamp(now_s, there).date() + datetime.timedelta(days=1)
    return datetime.datetime.combine(tomorrow, datetime.time(), there).timestamp()


def is_seconds(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 < value <= SECONDS_MAX
    )


def _undeclarable(why: str) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_INVALID_DECLARATION", why, field="ttl")

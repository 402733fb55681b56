"""How long keys live: the note's defaults, and what a caller may say instead."""

from __future__ import annotations

from typing import Final

import msgspec

TTL_S_MAX: Final = 10 * 365 * 86_400


class Ttls(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds. Change them for a unit at its start, or in each call."""

    req: float = 10
    """From a request to a backend that starts on it."""
    res: float = 30
    """From an answer, good or bad, to the frontend that reads it."""
    keep: float | None = 86_400
    """State; None keeps it for ever."""

    def __post_init__(self) -> None:
        check(self.req, "ttl of REQ")
        check(self.res, "ttl of RES")
        if self.keep is not None:
            check(self.keep, "ttl of KEEP")


def check(seconds: object, what: str = "ttl") -> float:
    """Seconds over 0, or a `ValueError`: what the store would refuse, or would take for something else."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise ValueError(f"{what}: seconds as int or float are expected, not {seconds!r}")
    if not 0.001 <= seconds <= TTL_S_MAX:  # NaN neither
        raise ValueError(f"{what}: from 0.001 to {TTL_S_MAX} seconds are expected")
    return seconds


def expiry(seconds: float) -> tuple[bytes, int]:
    """The option of SET: whole seconds by EX, as the note writes them, fractions by PX."""
    if isinstance(seconds, int) or seconds.is_integer():
        return b"EX", int(seconds)
    return b"PX", max(1, round(seconds * 1000))


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))

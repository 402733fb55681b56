"""How long a holder may believe that it holds: the lease, as its own clock sees it. No clock, no timer in here.

The store counts the TTL from when it runs the script, the holder from before it sent the request, which is earlier;
it stops a margin earlier still. So by the time the store lets someone else in, the holder has long stopped, unless
its clock runs slow by more than the margin.
"""

from __future__ import annotations

import math
from typing import Literal

MARGIN_SHARE = 0.1
MARGIN_MAX_S = 1.0
RENEW_SHARE = 1 / 3
"""A renewal that fails leaves time for more before the lease ends."""
RETRY_SHARE = 1 / 12

Due = Literal["nothing", "renew", "lost"]


def margin_s(ttl_s: float) -> float:
    return ttl_s * MARGIN_SHARE if ttl_s < MARGIN_MAX_S / MARGIN_SHARE else MARGIN_MAX_S


class Lease:
    """`now` and `asked_at` are seconds of any one clock that never goes back."""

    __slots__ = ("_asking", "lost", "renew_at", "ttl_s", "until")

    def __init__(self, ttl_s: float, asked_at: float, *, renews: bool = True) -> None:
        self.ttl_s = ttl_s
        self.until = asked_at + ttl_s - margin_s(ttl_s)
        self.renew_at = asked_at + ttl_s * RENEW_SHARE if renews else math.inf
        self.lost = False
        self._asking = False

    def valid(self, now: float) -> bool:
        return not self.lost and now < self.until

    def wake_at(self) -> float:
        """When `step` has to be called next."""
        return self.until if self._asking or self.until < self.renew_at else self.renew_at

    def step(self, now: float) -> Due:
        """What is due. After `renew` one of `renewed`, `failed`, `refused` is called; after `lost` nothing is."""
        if now >= self.until:
            self.lost = True
        if self.lost:
            return "lost"
        if now < self.renew_at or self._asking:
            return "nothing"
        self._asking = True
        return "renew"

    def renewed(self, asked_at: float) -> None:
        """The store has begun the TTL anew, at our request of `asked_at`. What was lost before stays lost."""
        self._asking = False
        self.until = max(self.until, asked_at + self.ttl_s - margin_s(self.ttl_s))
        self.renew_at = asked_at + self.ttl_s * RENEW_SHARE

    def failed(self, now: float) -> None:
        """No answer: it may have been renewed or not, so the lease counts on nothing, and asks again soon."""
        self._asking = False
        self.renew_at = now + self.ttl_s * RETRY_SHARE

    def refused(self) -> None:
        """The store says that someone else holds it, or nobody."""
        self._asking = False
        self.lost = True

"""How long to wait before the next attempt: exponential, with full jitter so that many clients of one node do not
come back in step. Pure: the random number is handed in."""

from __future__ import annotations


class Backoff:
    """The n-th delay is somewhere between 0 and min(`max_s`, `base_s` * `factor` ** n)."""

    __slots__ = ("attempts", "base_s", "factor", "max_s")

    def __init__(self, base_s: float = 0.1, factor: float = 2.0, max_s: float = 10.0) -> None:
        if not (0 < base_s <= max_s and factor >= 1):
            raise ValueError(f"a backoff needs 0 < base_s <= max_s and factor >= 1, not {base_s}, {max_s}, {factor}")
        self.base_s = base_s
        self.factor = factor
        self.max_s = max_s
        self.attempts = 0

    @property
    def ceiling_s(self) -> float:
        """The longest that the next delay can be."""
        try:
            return min(self.max_s, float(self.base_s * self.factor**self.attempts))
        except OverflowError:
            return self.max_s

    def next_s(self, random: float) -> float:
        """The next delay, for a random number from 0 to 1."""
        delay = random * self.ceiling_s
        self.attempts += 1
        return delay

    def reset(self) -> None:
        """It worked; the next failure starts from the beginning."""
        self.attempts = 0

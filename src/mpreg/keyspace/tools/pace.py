"""No more than so many keys a second. No clock inside: it is told the time and says how long to wait."""

from __future__ import annotations


class Pace:
    """Work is done in batches; `after` a batch says the pause that keeps the rate. Time that was lost elsewhere is
    not made up for: at most one second's worth is saved."""

    def __init__(self, keys_per_s: float | None, now: float) -> None:
        self._keys_per_s = keys_per_s
        self._due = now

    def after(self, keys: int, now: float) -> float:
        if not self._keys_per_s:
            return 0.0
        self._due = max(self._due, now - 1.0) + keys / self._keys_per_s
        return max(0.0, self._due - now)

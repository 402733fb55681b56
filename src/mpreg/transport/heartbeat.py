"""Is the peer still there? A pure machine (R-W5): a ping every interval, lost after two that nothing came back for."""

from __future__ import annotations

import enum
from typing import Final

UNANSWERED_MAX: Final = 2


class Beat(enum.Enum):
    PING = "ping"
    LOST = "lost"


class Heartbeat:
    """Stepped once an interval. Anything that shows life counts as an answer, not only a pong: a peer that is busy
    sending 100 MB, or slowly taking them, is alive."""

    __slots__ = ("unanswered",)

    def __init__(self) -> None:
        self.unanswered = -1  # no ping is out yet

    def step(self, alive: bool) -> Beat:
        """`alive`: whether anything was heard since the last step."""
        self.unanswered = 0 if alive else self.unanswered + 1
        return Beat.LOST if self.unanswered >= UNANSWERED_MAX else Beat.PING

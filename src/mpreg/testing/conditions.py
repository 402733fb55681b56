"""What a simulated network does to messages."""

from __future__ import annotations

from typing import Final

import msgspec


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Shares are from 0 to 1, of the messages; each message has its own luck."""

    delay_min_s: float = 0.0005
    delay_max_s: float = 0.005
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    """Of messages that may overtake those sent before them on the same link."""
    link_timeout_s: float = 45.0
    """A link over which nothing comes through in one direction breaks after this, as unanswered pings do it."""

    def __post_init__(self) -> None:
        if not 0 <= self.delay_min_s <= self.delay_max_s:
            raise ValueError("0 <= delay_min_s <= delay_max_s does not hold")
        for name in ("loss", "duplication", "reordering"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")


GOOD: Final = Conditions()
"""A network within one building."""
BAD: Final = Conditions(delay_min_s=0.001, delay_max_s=0.2, loss=0.1, duplication=0.05, reordering=0.1)
"""A tenth gets lost, and what arrives is late, double and out of order."""
AWFUL: Final = Conditions(delay_min_s=0.001, delay_max_s=0.3, loss=0.3, duplication=0.1, reordering=0.2)
"""Nearly a third gets lost."""

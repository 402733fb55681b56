"""How often values are used, counted where they are served and written to the store now and then.

Exact counts would cost a write for every read. Bounded: past the limit they are written at once and forgotten.
"""

from __future__ import annotations

from typing import Final

import msgspec

KEYS_MAX: Final = 50_000


class Use(msgspec.Struct):
    version: int
    known: int
    """What the store has."""
    new: int = 0
    used_ms: int = 0


class Uses:
    def __init__(self) -> None:
        self._uses: dict[bytes, Use] = {}

    def used(self, key: bytes, version: int, now_ms: int, known: int | None = None) -> int:
        """One more use; how many there were with it, as far as this node knows."""
        use = self._uses.get(key)
        if use is None or use.version != version:
            use = self._uses[key] = Use(version, known or 0)
        elif known is not None:
            use.known = known
        use.new += 1
        use.used_ms = now_ms
        return use.known + use.new

    @property
    def is_full(self) -> bool:
        return len(self._uses) >= KEYS_MAX

    def take(self) -> list[tuple[bytes, Use]]:
        """What the store has not been told. It counts as told then; if there are too many keys, all are forgotten."""
        taken = [(key, Use(use.version, use.known, use.new, use.used_ms)) for key, use in self._uses.items() if use.new]
        if self.is_full:
            self._uses = {}
        for use in self._uses.values():
            use.known, use.new = use.known + use.new, 0
        return taken

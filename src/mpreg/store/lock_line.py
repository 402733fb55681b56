"""Those of one process who wait for the same lock stand in one line, and only its first asks the store.

So a thousand tasks that want one lock cost the store no more than one, and get it in the order in which they came.
Between processes there is no order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from mpreg.errors import StoreError

WAITERS_MAX = 100_000


class Lines:
    """The lines of one store. A line exists while someone stands in it."""

    __slots__ = ("_lines", "waiters")

    def __init__(self) -> None:
        self._lines: dict[bytes, deque[asyncio.Future[None]]] = {}
        self.waiters = 0

    def enter(self, key: bytes) -> bool:
        """Become the first, if nobody stands there. Whoever is first must `leave`."""
        if key in self._lines:
            return False
        self._lines[key] = deque()
        return True

    async def turn(self, key: bytes) -> None:
        """Become the first when all who came earlier have left. A caller that is cancelled has left too."""
        if self.waiters >= WAITERS_MAX:
            raise StoreError(
                "STORE_BUSY", f"{WAITERS_MAX} tasks of this process wait for locks already", limit=WAITERS_MAX
            )
        behind = self._lines[key]
        turn = asyncio.get_running_loop().create_future()
        behind.append(turn)
        self.waiters += 1
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave(key)  # it was our turn already: pass it on
            else:
                with contextlib.suppress(ValueError):  # it was skipped
                    behind.remove(turn)
            raise
        finally:
            self.waiters -= 1

    def leave(self, key: bytes) -> None:
        behind = self._lines[key]
        while behind:
            turn = behind.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._lines[key]

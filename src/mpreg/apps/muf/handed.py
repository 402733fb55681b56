"""Requests for a loop that takes them one by one: one is claimed when the loop asks for it, not before, so that what
the loop has no time for is left to others and nothing expires in a queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from mpreg.apps.muf.request import Request


class Handed:
    def __init__(self, concurrency: int) -> None:
        self.take_on: Callable[[int], None] = lambda slots: None
        """Told at each change how many requests may be taken on in all."""
        self._concurrency = concurrency
        self._arrived: deque[Request] = deque()
        self._unanswered = 0
        self._asked = False
        self._closed = False
        self._changed = asyncio.Event()

    async def take(self, request: Request) -> None:
        """What the backend calls: until the request is answered."""
        self._arrived.append(request)
        self._changed.set()
        await request.done()
        if request in self._arrived:
            self._arrived.remove(request)
        else:
            self._unanswered -= 1
        self._tell()

    async def next(self) -> Request | None:
        """The next request, as soon as fewer than `concurrency` are unanswered; None after `close`."""
        self._asked = True
        self._tell()
        try:
            while True:
                while self._arrived:
                    request = self._arrived.popleft()
                    self._unanswered += 1
                    if not request.expired and not request.answered:
                        return request
                    request.drop()
                if self._closed:
                    return None
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._asked = False
            self._tell()

    def close(self) -> None:
        """No more are asked for; what has arrived is still handed over."""
        self._closed = True
        self._changed.set()

    def _tell(self) -> None:
        self.take_on(min(self._concurrency, self._unanswered + (self._asked and not self._closed)))

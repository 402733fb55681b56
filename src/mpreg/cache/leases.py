"""One computation of a value in the cluster at a time (R-C7): whoever misses first gets a lease, the others wait for
the value, or for the lease to end, and then exactly one of them gets the next one.

A lease is in the record of its key, so a delete or a plain write ends it, and what was computed from the old state of
things is not stored any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from mpreg.cache.keys import READY
from mpreg.cache.store_level import Leased, StoreLevel
from mpreg.errors import MpregError

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
"""How often who waits asks again, should nobody tell."""

T = TypeVar("T")


class Leases:
    def __init__(self, level: StoreLevel) -> None:
        self._level = level
        self._waiting: dict[bytes, asyncio.Task[None]] = {}

    async def acquire(self, key: bytes, lease_ms: int) -> Leased:
        """A value that is there, fresh or stale; or a lease. Waits while someone else has it: set a timeout."""
        leased = await self._level.lease(key, lease_ms)
        while leased.record is None and not leased.lease:
            waiting = self._waiting.get(key)
            if waiting is None:
                waiting = asyncio.get_running_loop().create_task(self._wait(key, leased))
                self._waiting[key] = waiting
                waiting.add_done_callback(partial(self._done, key))
            await asyncio.shield(waiting)
            leased = await self._level.lease(key, lease_ms)
        return leased

    def _done(self, key: bytes, task: asyncio.Task[None]) -> None:
        del self._waiting[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("Waiting for a value: %s", error)

    async def _wait(self, key: bytes, leased: Leased) -> None:
        """One for all of this node who wait for this key: until it is there, or the lease has ended, or a second is
        over. What was said before the subscription was acknowledged shows in the version."""
        left_s = max(0.001, (leased.until_ms - self._level.clock.now_ms()) / 1000)
        try:
            async with asyncio.timeout(min(left_s, POLL_S)):
                async with self._level.store.subscribe([READY.channel(key=key.decode())]) as ready:
                    if await self._level.is_leased(key):
                        await anext(ready)
        except TimeoutError:
            return

    async def close(self) -> None:
        for task in self._waiting.values():
            task.cancel()
        if self._waiting:
            await asyncio.wait(list(self._waiting.values()))


async def while_renewed(renew: Callable[[], Awaitable[bool]], lease_ms: int, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns, the lease being renewed meanwhile. A lease that is lost does not stop the work: its caller
    wants the value all the same."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(lease_ms / 3000)
            try:
                if not await renew():
                    return
            except MpregError as error:
                log.debug("A lease could not be renewed: %s", error)

    keeping = asyncio.get_running_loop().create_task(keep())
    try:
        return await work()
    finally:
        keeping.cancel()

"""A lock in someone's hands: renewed while it is held, and a word to the holder when it is lost.

The invariant: `valid` is False, by the holder's own clock alone, before the store gives the lock to anyone else.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from mpreg.errors import StoreError
from mpreg.store.lock_lease import Lease

if TYPE_CHECKING:
    from mpreg.store.lock import Lock

OnLost = Literal["cancel", "signal"]

log = logging.getLogger("mpreg.lock")

lease_clock: Callable[[], float] = (
    functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""Goes on while the machine sleeps, as the store's clock elsewhere does."""


class Held:
    """What `acquire` returns. Someone must end it: by `release`, or by `leave`."""

    __slots__ = ("_ended", "_lease", "_lock", "_on_lost", "_round", "fence", "token")

    def __init__(self, lock: Lock, token: str, fence: int, lease: Lease, now: float) -> None:
        self._lock = lock
        self._lease = lease
        self._on_lost: tuple[Callable[[], None], ...] = ()
        self._ended = False
        self.token = token
        self.fence = fence
        """Higher than that of every earlier holder."""
        self._round = lock.store.alarms.set(self, lease.wake_at(), now)

    def __repr__(self) -> str:
        return f"Held({self._lock.name!r}, fence={self.fence}, {'valid' if self.valid else 'not valid'})"

    @property
    def name(self) -> str:
        return self._lock.name

    @property
    def valid(self) -> bool:
        """Whether it is surely still held; looks at the clock, so it is right also after a pause of the process."""
        return not self._ended and self._lease.valid(lease_clock())

    @property
    def lost(self) -> bool:
        """It ran out, or was taken away, while it was held."""
        return self._lease.lost or (not self._ended and not self._lease.valid(lease_clock()))

    @property
    def valid_until(self) -> float:
        """When `valid` ends unless it is renewed, on the clock `lease_clock`."""
        return self._lease.until

    def check(self) -> None:
        """STORE_LOCK_LOST unless it is surely still held."""
        if not self.valid:
            raise self.lost_error()

    def lost_error(self) -> StoreError:
        return StoreError(
            "STORE_LOCK_LOST", f"the lock {self.name!r} (fence {self.fence}) is lost", name=self.name, fence=self.fence
        )

    def on_lost(self, call: Callable[[], None]) -> None:
        """`call` when the lock is lost; at once if it is."""
        if self._lease.lost:
            call()
        else:
            self._on_lost += (call,)

    async def wait_lost(self) -> None:
        """Returns when the lock is lost, and only then."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell() -> None:
            if not told.done():
                told.set_result(None)

        self.on_lost(tell)
        try:
            await told
        finally:
            self._on_lost = tuple(call for call in self._on_lost if call is not tell)

    # --- the end ------------------------------------------------------------------------------------------------

    async def release(self) -> bool:
        """Give it back. False if it was not ours any more; then nothing has changed in the store."""
        self._end()
        try:
            return await self._lock.send_release(self.token) == 1
        except StoreError as error:
            if error.state_changed is False or not error.retryable:
                raise
            # It may have been given back already; once more does no harm.
            again = await self._lock.send_release(self.token)
            return again == 1 or not self._lease.lost

    def leave(self) -> None:
        """Stop renewing it, and leave it to its TTL: nobody else gets it before."""
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._round.discard(self)
        self._on_lost = ()

    # --- renewal ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """By its alarm."""
        if self._ended:
            return
        lease = self._lease
        now = lease_clock()
        due = lease.step(now)
        if due == "lost":
            self._lose("it ran out before it could be renewed")
            return
        if due == "renew":
            self._renew(now)
        self._sleep()

    def _sleep(self) -> None:
        self._round.discard(self)
        self._round = self._lock.store.alarms.set(self, self._lease.wake_at(), lease_clock())

    def _renew(self, asked_at: float) -> None:
        try:
            asked: Any = self._lock.send_renew(self.token)
        except StoreError:
            self._lease.failed(asked_at)
            return

        def answered(future: asyncio.Future[int]) -> None:
            failed = future.cancelled() or future.exception() is not None
            if self._ended or self._lease.lost:
                return
            if failed:
                self._lease.failed(lease_clock())
            elif future.result() == 1:
                self._lease.renewed(asked_at)
            else:
                self._lease.refused()
                self._lose("someone else holds it, or nobody")
                return
            self._sleep()

        asked.add_done_callback(answered)

    def _lose(self, why: str) -> None:
        log.warning("lock.lost %s fence=%d: %s", self.name, self.fence, why)
        calls, self._on_lost = self._on_lost, ()
        for call in calls:
            call()


class Hold:
    """One `async with` over a lock."""

    def __init__(self, lock: Lock, wait_s: float, on_lost: OnLost) -> None:
        self._lock = lock
        self._wait_s = wait_s
        self._cancels = on_lost == "cancel"
        self._held: Held | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._cancelling = 0

    async def __aenter__(self) -> Held:
        if self._held is not None:
            raise StoreError("STORE_INVALID_OPTION", "a hold is for one `async with`; make another one", option="hold")
        self._held = held = await self._lock.acquire(wait_s=self._wait_s)
        if self._cancels:
            self._task = task = asyncio.current_task()
            assert task is not None
            self._cancelling = task.cancelling()
            held.on_lost(self._cancel)
        return held

    def _cancel(self) -> None:
        assert self._task is not None
        self._cancelled = True
        self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        held = self._held
        assert held is not None
        lost = held.lost
        if self._cancelled and self._task is not None and self._task.uncancel() > self._cancelling:
            # Someone else cancelled this task as well, and that goes on.
            self._cancelled = False
        try:
            await held.release()
        except StoreError as failure:
            log.warning("lock %s could not be given back and is left to its TTL: %s", held.name, failure)
        if lost and (error is None or (self._cancelled and isinstance(error, asyncio.CancelledError))):
            raise held.lost_error() from error

"""Locks that many processes share: at most one holder, until it gives the lock back or its TTL runs out.

    lock = Lock(store, "backup:daily", ttl_s=30)
    async with lock.hold(wait_s=10) as held:        # STORE_LOCK_HELD if it is not free in time
        await write(held.fence, …)                  # renewed meanwhile; cancelled if the lock is lost

A process can be paused at any point for longer than any TTL. So what must not be done twice has to be refused by the
resource itself: hand it `held.fence`, which is higher for each later holder, and let it refuse a lower one than it
has seen. A fence grows also when the lock has run out, was broken, or the store came back without its last writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import random
import secrets
import socket
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mpreg.errors import StoreError
from mpreg.store.link import Argument, silence
from mpreg.store.lock_held import Held, Hold, OnLost, lease_clock
from mpreg.store.lock_keys import LockKeys, plain_keys
from mpreg.store.lock_lease import Lease
from mpreg.store.lock_line import Lines
from mpreg.store.script import Script

if TYPE_CHECKING:
    from mpreg.store.store import Store

ACQUIRE = Script.load(__package__, "lock_acquire.lua")
RENEW = Script.load(__package__, "lock_renew.lua")
RELEASE = Script.load(__package__, "lock_release.lua")

TTL_MIN_S = 0.1
TTL_MAX_S = 30 * 86_400.0
FENCE_KEPT_MS = 7 * 86_400_000
"""The last fence outlives the lock by a week. It could go at once, as long as the store's clock never goes back."""
OWNER_CHARS_MAX = 200

POLL_S = 1.0
"""A waiter that is notified asks this often all the same: a peer that only deletes its lock tells nobody."""
POLL_UNTOLD_S = 0.1
"""How often one asks who can't subscribe; half as much up or down at random, so that waiters don't march in step."""

_lines: WeakKeyDictionary[Store, Lines] = WeakKeyDictionary()
_numbers = itertools.count(1)
_host = socket.gethostname()
_process = (f"{_host}/{os.getpid()}", secrets.token_hex(12))


def _after_fork() -> None:
    global _process  # noqa: PLW0603 - two processes must never make the same token
    _process = (f"{_host}/{os.getpid()}", secrets.token_hex(12))


os.register_at_fork(after_in_child=_after_fork)


class Lock:
    """A lock by its name, which is its key in the store. Cheap to make; it holds nothing itself, so one object serves
    any number of tasks."""

    def __init__(
        self,
        store: Store,
        name: str | bytes | LockKeys,
        *,
        ttl_s: float = 30.0,
        owner: str | None = None,
        renew: bool = True,
    ) -> None:
        """`owner` is for people who look who holds it (default: host/pid). With `renew`, the TTL begins anew each
        third of it, as long as it is held. A name that needs more than a name is given by `lock_keys(…)`."""
        if isinstance(ttl_s, bool) or not TTL_MIN_S <= ttl_s <= TTL_MAX_S:
            raise _option("ttl_s", f"the TTL of a lock is {TTL_MIN_S:g} to {TTL_MAX_S:g} s, not {ttl_s!r}")
        if owner is not None and not (0 < len(owner) <= OWNER_CHARS_MAX and owner.isprintable()):
            raise _option(
                "owner", f"the owner of a lock is 1 to {OWNER_CHARS_MAX} printable characters: {owner!r:.100}"
            )
        self.store = store
        self.keys = keys = name if isinstance(name, LockKeys) else plain_keys(name)
        self.ttl_s = ttl_s
        self.owner = owner or default_owner()
        self.renews = renew
        ttl_ms = math.ceil(ttl_s * 1000)
        self._ttls = (ttl_ms, FENCE_KEPT_MS + ttl_ms)
        if keys.owner is None:
            self._with_fence: tuple[bytes, ...] = (keys.lock, keys.fence)
            self._without_fence: tuple[bytes, ...] = (keys.lock,)
            self._record: tuple[Argument, ...] = ()
        else:
            self._with_fence = (keys.lock, keys.fence, keys.owner)
            self._without_fence = (keys.lock, keys.owner)
            self._record = (keys.visible, self.owner)

    def __repr__(self) -> str:
        return f"Lock({self.name!r})"

    @property
    def name(self) -> str:
        return self.keys.lock.decode("utf-8", "backslashreplace")

    # --- taking it ----------------------------------------------------------------------------------------------

    def hold(self, *, wait_s: float = 10.0, on_lost: OnLost = "cancel") -> Hold:
        """`async with lock.hold() as held:` takes it for a block. If the lock is lost, the block is cancelled and
        raises STORE_LOCK_LOST; with `on_lost="signal"` it runs on, and finds out by `held.valid`."""
        return Hold(self, wait_s, on_lost)

    async def acquire(self, *, wait_s: float = 10.0) -> Held:
        """Take it, waiting for it up to `wait_s` (`math.inf`: as long as it takes); STORE_LOCK_HELD if it is not free
        by then. Tasks of this process get it in the order in which they asked."""
        if isinstance(wait_s, bool) or not wait_s >= 0:
            raise _option("wait_s", f"the time to wait for a lock is 0 or more seconds, not {wait_s!r}")
        if wait_s == 0:
            taken = await self.ask(self.new_token())
            if isinstance(taken, Held):
                return taken
            busy = taken
        else:
            waiting = Waiting(self)
            try:
                return await self._acquire(waiting, None if math.isinf(wait_s) else wait_s)
            except TimeoutError:
                if waiting.failure is not None:
                    raise waiting.failure from None
                busy = waiting.busy
        said = f" by {busy.owner}" if busy.owner else ""
        raise StoreError(
            "STORE_LOCK_HELD",
            f"the lock {self.name!r} is held{said}; waited {wait_s:g} s",
            name=self.name,
            owner=busy.owner or None,
            ttl_ms=busy.ttl_ms,
        )

    async def _acquire(self, waiting: Waiting, wait_s: float | None) -> Held:
        lines, key = _lines_of(self.store), self.keys.lock
        first = lines.enter(key)
        if first:
            try:
                held = await waiting.ask()
            except BaseException:
                lines.leave(key)
                raise
            if held is not None:
                lines.leave(key)
                return held
        async with asyncio.timeout(wait_s):
            if not first:
                await lines.turn(key)
            try:
                return await waiting.wait()
            finally:
                lines.leave(key)

    async def try_acquire(self) -> Held | None:
        """Take it if it is free at this moment."""
        taken = await self.ask(self.new_token())
        return taken if isinstance(taken, Held) else None

    # --- by token -----------------------------------------------------------------------------------------------

    def new_token(self) -> str:
        """Never the same twice; where it is the value of the lock it says who holds it."""
        if self.keys.owner is not None:
            return f"{_process[1]}{next(_numbers):x}"
        return f"{self.owner}:{_process[1]}{next(_numbers):x}"

    def send_renew(self, token: str) -> Awaitable[int]:
        """Begin the TTL anew if `token` still holds the lock: 1, else 0."""
        sent: Awaitable[int] = self.store.send_script(RENEW, self._with_fence, (token, *self._ttls))
        return sent

    def send_release(self, token: str) -> Awaitable[int]:
        """Give the lock back if `token` still holds it: 1, else 0. For whoever got the token from another process."""
        sent: Awaitable[int] = self.store.send_script(RELEASE, self._without_fence, (token, self.keys.channel))
        return sent

    async def ask(self, token: str) -> Held | Busy:
        """One attempt. With a token that holds the lock already, which only its maker can know, it is held again."""
        asked_at = lease_clock()
        keys = self.keys
        try:
            reply: Any = await self.store.send_script(ACQUIRE, self._with_fence, (token, *self._ttls, *self._record))
        except BaseException as error:
            if not isinstance(error, StoreError) or error.state_changed is not False:
                self._give_up(token)
            raise
        if type(reply) is int:
            lease = Lease(self.ttl_s, asked_at, renews=self.renews)
            now = lease_clock()
            if lease.valid(now):
                return Held(self, token, reply, lease, now)
            self._give_up(token)  # the answer took longer than the lease: too late to be worth anything
            return Busy(0, self.owner)
        return Busy(reply[0], owner_of(reply[1]) if keys.owner is None else _text(reply[1]))

    def _give_up(self, token: str) -> None:
        """The answer will not be heard, yet the lock may be ours: give it back when the request has been served."""
        try:
            silence(self.store.send_script(RELEASE, self._without_fence, (token, self.keys.channel)))
        except StoreError:
            return  # then the TTL ends it


class Busy:
    """Someone else has it."""

    __slots__ = ("owner", "ttl_ms")

    def __init__(self, ttl_ms: int, owner: str) -> None:
        self.ttl_ms = ttl_ms
        self.owner = owner


class Waiting:
    """One task on its way to a lock. `busy` is what it saw last, `failure` why it saw nothing."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._token = lock.new_token()
        self.busy = Busy(-1, "")
        self.failure: StoreError | None = None

    async def wait(self) -> Held:
        """For the first of the line."""
        if self.busy.ttl_ms < 0 and (held := await self.ask()) is not None:
            return held
        released = self._lock.store.subscribe(channels=[self._lock.keys.channel])
        try:
            await released.__aenter__()
        except StoreError:
            return await self._by_asking()
        try:
            # It may have become free before the subscription stood: so ask first, then listen.
            while (held := await self.ask()) is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s(POLL_S)):
                        await released.__anext__()
            return held
        finally:
            await released.__aexit__(None, None, None)

    async def _by_asking(self) -> Held:
        while (held := await self.ask()) is None:
            await asyncio.sleep(self._pause_s(POLL_UNTOLD_S * random.uniform(0.5, 1.5)))
        return held

    def _pause_s(self, poll_s: float) -> float:
        """Until the lock runs out by itself, if that is sooner."""
        return min(poll_s, (self.busy.ttl_ms + 1) / 1000) if self.busy.ttl_ms >= 0 else poll_s

    async def ask(self) -> Held | None:
        """One attempt; a store that is away is asked again later."""
        try:
            taken = await self._lock.ask(self._token)
        except StoreError as error:
            if not error.retryable:
                raise
            self.failure = error
            self.busy = Busy(-1, "")
            return None
        if isinstance(taken, Held):
            return taken
        self.failure = None
        self.busy = taken
        return None


def _lines_of(store: Store) -> Lines:
    lines = _lines.get(store)
    if lines is None:
        lines = _lines[store] = Lines()
    return lines


def default_owner() -> str:
    return _process[0]


def owner_of(value: bytes) -> str:
    """Who holds a lock, as far as its value tells; a value that is no token of ours is shown as it is."""
    owner, colon, _ = _text(value).rpartition(":")
    return owner if colon else _text(value)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _option(option: str, why: str) -> StoreError:
    return StoreError("STORE_INVALID_OPTION", why, option=option)

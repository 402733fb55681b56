"""Who of a group works on a request (R-M6): a KEEP key of the group, set before the request is read.

`once`: the claim lasts as long as the request, so nobody ever starts it again: at most once.
`lease`: the claim is short and renewed; when its holder dies another one starts the request: at least once, while the
request lives.
`off`: no claim; every backend that hears of a request runs it.
"""

from __future__ import annotations

from asyncio import Future
from typing import Any, Final, Literal, NamedTuple

from mpreg.apps.muf import names, ttl
from mpreg.apps.muf.names import Name
from mpreg.store import Script, Store, StoreReplyError
from mpreg.store.link import silence

Policy = Literal["off", "once", "lease"]

LEASE_S: Final = 3.0
UNKNOWN_MS: Final = 86_400_000
"""A claim is made before it is known how long the request lives, and shortened at once; longer requests lengthen it."""
AFTER_MS: Final = 1_000
"""A claim outlives its request by this much: a backend that saw it just before may come late."""

_RENEW: Final = Script.load(__package__ or "", "claim_renew.lua")


class Taken(NamedTuple):
    """What a backend knows of a request before it starts on it."""

    mine: bool
    alive_s: float | None
    """How much longer the request lives: 0 when it is gone, None when it never ends or the store does not tell."""
    raw: bytes | None = None
    """Its bytes; None when it is gone, or answered by whoever had it before."""


class Asked(NamedTuple):
    """Questions that are under way."""

    alive: Future[int]
    first: Future[Any]


class Claims:
    def __init__(self, store: Store, group: str, worker: str, policy: Policy, lease_s: float = LEASE_S) -> None:
        self.policy = policy
        self.lease_s = lease_s
        self._store = store
        self._group = group
        self._worker = worker

    def begin(self, request: Name) -> Asked:
        """What is asked first, in one write: how long the request lives, and the claim, or without claims the request
        itself. Hand it to `take`."""
        key = request.key
        alive = self._store.send(b"PTTL", key)
        if self.policy == "off":
            return Asked(alive, self._store.send(b"GET", key))
        first_ms = UNKNOWN_MS if self.policy == "once" else ttl.milliseconds(self.lease_s)
        claim = names.claim(self._group, request).key
        return Asked(alive, self._store.send(b"SET", claim, self._worker, b"NX", b"PX", first_ms))

    async def take(self, request: Name, asked: Asked, again: bool = False) -> Taken:
        """The claim, then the request: two round trips, one without claims. `again`: an earlier attempt may have
        claimed it already, before its connection broke."""
        try:
            left_ms = await asked.alive
        except StoreReplyError as error:
            if error.code != "STORE_NOT_PERMITTED":
                silence(asked.first)
                raise
            left_ms = -1
        except BaseException:
            silence(asked.first)
            raise
        alive_s = None if left_ms == -1 else max(0, left_ms) / 1000
        first = await asked.first
        if self.policy == "off":
            return Taken(True, alive_s, first)
        won = first is not None
        claim = names.claim(self._group, request).key
        if not won and again:
            won = await self._store.send(b"GET", claim) == self._worker.encode()
        if not won:
            return Taken(False, alive_s)
        return Taken(True, alive_s, await self._read(request, claim, alive_s))

    async def _read(self, request: Name, claim: bytes, alive_s: float | None) -> bytes | None:
        send = self._store.send
        if self.policy == "lease":
            beside = [send(b"EXISTS", request.with_status(status).key) for status in ("RES", "ERR")]
        elif alive_s is not None:
            beside = [send(b"PEXPIRE", claim, ttl.milliseconds(alive_s) + AFTER_MS)]
        else:
            beside = []
        reading = send(b"GET", request.key)
        for future in (*beside, reading):
            silence(future)
        done = [await future for future in beside]
        raw: bytes | None = await reading
        return None if self.policy == "lease" and any(done) else raw

    async def keep(self, request: Name) -> bool:
        """Renew a lease; False when it is lost."""
        return await self._last(request, ttl.milliseconds(self.lease_s))

    async def settle(self, request: Name, alive_s: float | None) -> None:
        """After the answer: nobody starts the request again, however long it still lives."""
        if self.policy == "lease" and alive_s:
            await self._last(request, ttl.milliseconds(alive_s) + AFTER_MS)

    async def release(self, request: Name) -> None:
        """Give a request back that was not started."""
        if self.policy != "off":
            await self._last(request, 1)

    async def _last(self, request: Name, ms: int) -> bool:
        claim = names.claim(self._group, request).key
        return bool(await self._store.script(_RENEW, [claim], [self._worker, ms]))

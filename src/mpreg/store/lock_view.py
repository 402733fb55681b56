"""Looking at a lock that someone else holds, and taking it away by force: for operators, not for programs.

A broken lock keeps its fence: the holder learns of it at its next renewal at the latest, and whatever it still writes
carries a lower fence than that of the next holder. Who broke it, when and why stays beside the lock.
"""

from __future__ import annotations

import getpass
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from mpreg.errors import StoreError
from mpreg.store.lock import default_owner, owner_of
from mpreg.store.lock_keys import LockKeys
from mpreg.store.script import Script

if TYPE_CHECKING:
    from mpreg.store.store import Store

INSPECT = Script.load(__package__, "lock_inspect.lua")
BREAK = Script.load(__package__, "lock_break.lua")

BREAKS_KEPT = 16
BREAKS_KEPT_MS = 30 * 86_400_000
REASON_CHARS_MAX = 500

log = logging.getLogger("mpreg.lock")


class Break(msgspec.Struct, frozen=True):
    """That a lock was taken away: when (by the store's clock), by whom, why, and from whom."""

    at: float
    by: str
    reason: str
    token: str
    agent: str = ""
    fence: str = ""
    ttl_ms: int = -1


class LockView(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a lock."""

    name: str
    held: bool
    owner: str | None = None
    """Who holds it; the bare value where a peer set it that names nobody."""
    token: str | None = None
    fence: int | None = None
    """Of the holder; where nobody holds it, of the last one."""
    ttl_s: float | None = None
    """Until it runs out by itself; None: never, which no lock of ours does."""
    acquired_at: float | None = None
    breaks: tuple[Break, ...] = ()
    """The last ones, newest first."""


async def inspect(store: Store, keys: LockKeys) -> LockView:
    owner = () if keys.owner is None else (keys.owner,)
    reply: list[Any] = await store.script(INSPECT, (keys.lock, keys.fence, keys.breaks, *owner))
    value, ttl_ms, fence, flat, breaks = reply
    record = dict(zip(flat[::2], flat[1::2], strict=True))
    held = ttl_ms != -2
    return LockView(
        name=_text(keys.lock),
        held=held,
        owner=(_text(record[b"agent"]) if b"agent" in record else owner_of(value)) if held else None,
        token=(_text(record[b"token"]) if b"token" in record else _text(value)) if held else None,
        fence=int(fence) if fence.isdigit() else None,
        ttl_s=ttl_ms / 1000 if ttl_ms >= 0 else None,
        acquired_at=float(record[b"acquired_at"]) if b"acquired_at" in record else None,
        breaks=tuple(msgspec.json.decode(entry, type=Break) for entry in breaks),
    )


async def break_lock(
    store: Store, keys: LockKeys, *, reason: str, by: str | None = None, token: str | None = None
) -> Break | None:
    """Take the lock from whoever holds it; with `token`, only from that holder. None if there was nothing to take."""
    if not 0 < len(reason) <= REASON_CHARS_MAX:
        raise StoreError(
            "STORE_INVALID_OPTION",
            f"breaking a lock needs a reason of 1 to {REASON_CHARS_MAX} characters",
            option="reason",
            limit=REASON_CHARS_MAX,
        )
    who = by or f"{getpass.getuser()}@{default_owner()}"
    owner = () if keys.owner is None else (keys.owner,)
    entry: bytes = await store.script(
        BREAK,
        (keys.lock, keys.breaks, *owner),
        (token or "", who, reason, BREAKS_KEPT, BREAKS_KEPT_MS, keys.channel),
    )
    if not entry:
        return None
    done = msgspec.json.decode(entry, type=Break)
    log.warning("lock.broken %s by %s (%s), taken from %s", _text(keys.lock), who, reason, done.agent or done.token)
    return done


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")

"""The keys that `mpreg.store.lock` keeps beside a lock, declared as it names them: fence, owner, breaks.

They are in the lock's hash slot, so the lock's key becomes their hash tag, unless it has one of its own. That puts them
outside the keyspace's prefix, which their patterns spell out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mpreg.keyspace.codec import Codec, integer, json
from mpreg.keyspace.declaration import Declaration, Protection, RedisType
from mpreg.keyspace.pattern import parse_pattern
from mpreg.keyspace.record import Record
from mpreg.keyspace.ttl import Ttl
from mpreg.store.lock import FENCE_KEPT_MS
from mpreg.store.lock_view import BREAKS_KEPT_MS, Break


class LockOwner(msgspec.Struct):
    """Who holds a lock whose own value is a fixed word, or of which a record is kept."""

    agent: str
    token: str
    fence: int
    acquired_at: float


def declared_beside(lock: Declaration) -> list[Declaration]:
    assert lock.ttl is not None, "there is no lock without a TTL"
    kept = FENCE_KEPT_MS / 1000
    fence = Ttl(seconds=lock.ttl.longest_s + kept)
    breaks = Ttl(seconds=BREAKS_KEPT_MS / 1000)
    owner = Ttl(seconds=lock.ttl.longest_s)
    return [
        _beside(lock, "fence", "string", "state", "The last fence of the lock; it outlives it.", fence, codec=integer),
        _beside(lock, "owner", "hash", "lock", "Who holds the lock.", owner, fields=Record(LockOwner)),
        _beside(lock, "breaks", "list", "state", "When it was taken by force.", breaks, codec=_BREAK),
    ]


_BREAK: Codec[Break] = json(Break)


def _beside(
    lock: Declaration, suffix: str, type: RedisType, protection: Protection, about: str, ttl: Ttl, **rest: Any
) -> Declaration:
    name = f"{lock.name}:{suffix}"
    text = f"{lock.shown}:{suffix}" if lock.hash_tag is not None else f"{{{{{lock.shown}}}}}:{suffix}"
    return Declaration(
        name=name,
        keyspace=lock.keyspace,
        pattern=parse_pattern(text, separator=lock.pattern.separator),
        type=type,
        protection=protection,
        about=about,
        ttl=ttl,
        **rest,
    )

"""The keys of one lock: the one everybody sees, and what stands beside it.

The name of a lock is its key, as the system that owns it wants it. The keys beside it are named so that all of them
are in the same hash slot of a cluster, for one script changes them together:

    lock      backup:daily              the token of the holder, or a fixed value
    fence     {backup:daily}:fence      the last fence; it outlives the lock
    owner     {backup:daily}:owner      who holds it; only where the value is fixed, or a record is wanted
    breaks    {backup:daily}:breaks     when it was taken from a holder by force, by whom and why
    channel   {backup:daily}:released   where those who wait are told
"""

from __future__ import annotations

import functools

import msgspec

from mpreg.errors import StoreError

NAME_BYTES_MAX = 1_024
PLAIN_KEPT = 4_096
"""Names whose keys are remembered: most programs lock the same few again and again."""


class LockKeys(msgspec.Struct, frozen=True):
    """Make it with `lock_keys`. A lock with `owner` keeps a record of its holder beside it; with `visible` that value
    is what the lock itself always holds."""

    lock: bytes
    fence: bytes
    breaks: bytes
    channel: bytes
    owner: bytes | None = None
    visible: bytes = b""


def lock_keys(
    name: str | bytes,
    *,
    visible: str | bytes = b"",
    record: bool = False,
    owner_key: str | bytes | None = None,
    fence_key: str | bytes | None = None,
) -> LockKeys:
    """The keys of the lock `name`. `visible` implies a record. Keys that a system names itself are taken as they are;
    whether a cluster has them in one slot is then up to these names."""
    lock = _bytes(name)
    if not 0 < len(lock) <= NAME_BYTES_MAX:
        raise StoreError(
            "STORE_INVALID_OPTION",
            f"a lock's name has 1 to {NAME_BYTES_MAX} bytes, not {len(lock)}",
            option="name",
            limit=NAME_BYTES_MAX,
        )
    recorded = record or bool(visible) or owner_key is not None
    owner = (_bytes(owner_key) if owner_key is not None else beside(lock, b"owner")) if recorded else None
    keys = LockKeys(
        lock=lock,
        fence=_bytes(fence_key) if fence_key is not None else beside(lock, b"fence"),
        breaks=beside(lock, b"breaks"),
        channel=beside(lock, b"released"),
        owner=owner,
        visible=_bytes(visible),
    )
    if len({keys.lock, keys.fence, keys.owner, keys.breaks}) < 4:
        raise StoreError("STORE_INVALID_OPTION", "two keys of a lock have the same name", option="owner_key")
    return keys


@functools.lru_cache(maxsize=PLAIN_KEPT)
def plain_keys(name: str | bytes) -> LockKeys:
    return lock_keys(name)


def beside(key: bytes, suffix: bytes) -> bytes:
    """A key in the same hash slot as `key`: its own hash tag still counts, else all of it becomes the tag."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    if end > start + 1:
        return key + b":" + suffix
    if b"}" in key:
        raise StoreError(
            "STORE_INVALID_OPTION",
            f"no other key can share the hash slot of {key!r:.100}: it has a '}}', but no hash tag",
            option="name",
        )
    return b"{" + key + b"}:" + suffix


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text

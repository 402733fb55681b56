"""What can be done with a declared key of any type: is it there, how long still, remove it, renew it."""

from __future__ import annotations

from typing import Protocol

from mpreg.keyspace.commands import Commands
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.writing import expiry_ms


class Entry(Protocol):
    """The handle of a key, whatever its type."""

    declaration: Declaration
    name: bytes


async def exists(store: Commands, entry: Entry) -> bool:
    return bool(await store.command(b"EXISTS", entry.name))


async def remaining_s(store: Commands, entry: Entry) -> float | None:
    """Seconds until it expires; None when it has no expiry, or is absent."""
    milliseconds = int(await store.command(b"PTTL", entry.name))
    return milliseconds / 1000 if milliseconds >= 0 else None


async def remove(store: Commands, entry: Entry) -> bool:
    """False when it was not there. The memory is freed in the background."""
    return bool(await store.command(b"UNLINK", entry.name))


async def renew(store: Commands, entry: Entry, *, ttl_s: float | None = None) -> bool:
    """Sets the declared expiry anew; False when the key is absent, or is declared without a TTL."""
    milliseconds = expiry_ms(entry.declaration, ttl_s)
    return milliseconds is not None and bool(await store.command(b"PEXPIRE", entry.name, milliseconds))

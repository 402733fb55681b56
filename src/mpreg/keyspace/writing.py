"""How the handles of declared keys write: the command and the declared expiry in one step, within limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from mpreg.errors import KeyspaceError
from mpreg.keyspace.commands import Commands, Scripting
from mpreg.keyspace.declaration import Declaration
from mpreg.store.script import Script

T = TypeVar("T")

ARGUMENTS_MAX = 2_000  # of one write; more would hold up the server, and Lua can unpack no more than 8,000
ELEMENTS_MAX = 10_000  # of one read of a whole collection
WRITE = Script.load("mpreg.keyspace", "write.lua")


async def write(
    store: Scripting, declaration: Declaration, key: bytes, command: bytes, *args: Any, ttl_s: float | None = None
) -> Any:
    """One command that writes `key`, and the expiry that is declared; `ttl_s` instead of the declared one."""
    if len(args) > ARGUMENTS_MAX:
        raise too_large(declaration, f"a write takes at most {ARGUMENTS_MAX} arguments, not {len(args)}", ARGUMENTS_MAX)
    milliseconds = expiry_ms(declaration, ttl_s)
    if milliseconds is None:
        return await store.command(command, key, *args)
    return await store.script(WRITE, [key], [renewal(declaration, ttl_s), milliseconds, command, *args])


def expiry_ms(declaration: Declaration, ttl_s: float | None) -> int | None:
    if declaration.ttl is None:
        if ttl_s is not None:
            raise KeyspaceError(
                "KEYSPACE_INVALID_TTL", f"{declaration.full_name} is declared without a TTL", field="ttl_s"
            )
        return None
    return declaration.ttl.expires_in_ms(time.time(), ttl_s)


def renewal(declaration: Declaration, ttl_s: float | None) -> bytes:
    """A TTL that the caller chose is meant for now."""
    if declaration.ttl is None:
        return b"never"
    return b"write" if ttl_s is not None else declaration.ttl.renew.encode()


def decoded(declaration: Declaration, key: bytes, decode: Callable[[Any], T], data: Any) -> T:
    """What `decode` makes of `data`; if it can't, the error names the key."""
    try:
        return decode(data)
    except KeyspaceError as error:
        shown = key.decode("utf-8", "backslashreplace")
        details = {**error.details, "key": shown, "family": declaration.full_name}
        raise KeyspaceError(error.code, f"{shown:.200}: {error.message}", **details) from None


async def refuse_long_read(store: Commands, declaration: Declaration, key: bytes, size: bytes, limit: int) -> None:
    """Raise when a collection has more than `limit` elements: reading it whole would hold up everybody else."""
    count = int(await store.command(size, key))
    if count > limit:
        raise too_large(declaration, f"{count} elements; a whole read takes at most {limit}", limit)


def too_large(declaration: Declaration, why: str, limit: int) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_TOO_LARGE", f"{declaration.full_name}: {why}", limit=limit)


def some(values: Collection[Any], what: str) -> None:
    """Raise for a call that names nothing: the store would refuse the command."""
    if not values:
        raise KeyspaceError("KEYSPACE_INVALID_VALUE", f"at least one {what} is needed", field=what)


def pairs(reply: Any) -> dict[bytes, bytes]:
    """The fields of a hash: a map in RESP3, a flat list in RESP2."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


def scored(reply: Any) -> list[tuple[bytes, float]]:
    """Members with scores: pairs in RESP3, a flat list in RESP2."""
    if reply and isinstance(reply[0], list):
        return [(member, float(score)) for member, score in reply]
    return [(member, float(score)) for member, score in zip(reply[::2], reply[1::2], strict=True)]

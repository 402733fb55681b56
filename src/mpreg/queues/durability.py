"""What the store may lose in a crash, in one word: what a sender is told with every message that is stored (R-Q4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mpreg.errors import StoreError

if TYPE_CHECKING:
    from mpreg.store import Store

_BY_FSYNC: Final = {b"always": "always", b"everysec": "everysec", b"no": "os"}


async def durability_of(store: Store) -> str:
    """`memory`, `everysec`, `always`, `os` (as the operating system likes); `unknown` where it can't be asked."""
    try:
        reply = await store.primaries()[0].command("CONFIG", "GET", "append*")
    except (StoreError, IndexError):
        return "unknown"
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    found = {bytes(name): bytes(value) for name, value in pairs}
    if found.get(b"appendonly") != b"yes":
        return "memory"
    return _BY_FSYNC.get(found.get(b"appendfsync", b""), "unknown")

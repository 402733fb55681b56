"""Changes of keys as they happen, each read back to its declaration; and a mark wherever some may be missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import msgspec

from mpreg.keyspace.catalog import Catalog
from mpreg.keyspace.declaration import Match
from mpreg.keyspace.tools.contents import Contents, read
from mpreg.keyspace.tools.walk import Scope
from mpreg.store import Gap, KeyEvent, Store

EVERY_CLASS = "A"


class Change(msgspec.Struct, frozen=True):
    """`contents` are what is stored now, which may be later than the event; None when the key is gone or they were
    not asked for."""

    key: bytes
    event: str
    match: Match | None
    contents: Contents | None = None


Watched: TypeAlias = "Change | Gap"


@asynccontextmanager
async def watching(
    store: Store,
    catalog: Catalog,
    scope: Scope,
    *,
    events: frozenset[str] = frozenset(),
    values: bool = False,
    configure: bool = True,
) -> AsyncIterator[AsyncIterator[Watched]]:
    """Once entered, no change is missed without a Gap. `events` limits what is shown to these names; with `values`
    each key is read, so a reader may fall behind, which a Gap says too.

    A server that sends no events and may not be told to is STORE_NO_EVENTS."""
    async with store.keyspace_events(scope.glob, needs=EVERY_CLASS, configure=configure) as source:

        async def changes() -> AsyncIterator[Watched]:
            async for item in source:
                if isinstance(item, Gap):
                    yield item
                    continue
                match = catalog.family_of(item.key)
                if scope.takes(item.key, match) and (not events or item.event in events):
                    yield await _change(store, item, match, values)

        yield changes()


async def _change(store: Store, item: KeyEvent, match: Match | None, values: bool) -> Change:
    contents = None
    if values and item.event not in ("del", "expired", "evicted"):
        type = (await store.command(b"TYPE", item.key)).decode()
        declaration = match.declaration if match is not None else None
        contents = await read(store, item.key, type, declaration) if type != "none" else None
    return Change(item.key, item.event, match, contents)

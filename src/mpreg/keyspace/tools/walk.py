"""All keys in a scope, page by page, each with its declaration, type and remaining life.

SCAN on every primary, never KEYS; the details of a page are one pipelined write. A key comes once, unless it comes
again after a million others. A key that vanished between the scan and the look at it is counted, not shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import msgspec

from mpreg.keyspace.catalog import Catalog, common_glob, common_head
from mpreg.keyspace.declaration import Match
from mpreg.keyspace.keyspace import Keyspace
from mpreg.keyspace.pattern import escape_glob
from mpreg.keyspace.tools.pace import Pace
from mpreg.keyspace.tools.record_read import Fresh, replies
from mpreg.store import Store

PAGE_KEYS = 500
NO_TTL = -1


class Scope(msgspec.Struct, frozen=True):
    """Which keys a tool looks at: `glob` for the server, the rest here. `roots` are what a key that nobody declared
    must begin with to be looked at; None takes every key."""

    glob: bytes
    roots: tuple[bytes, ...] | None = None
    families: frozenset[str] | None = None

    def takes(self, key: bytes, match: Match | None) -> bool:
        if self.families is not None:
            return match is not None and match.declaration.full_name in self.families
        return self.roots is None or match is not None or key.startswith(self.roots)


class Walked(msgspec.Struct, frozen=True):
    key: bytes
    match: Match | None
    type: str
    ttl_ms: int
    """Milliseconds to live, or NO_TTL."""


class WalkPage(msgspec.Struct, frozen=True):
    found: list[Walked]
    gone: int
    """Keys that vanished before they could be looked at."""


def scope_of(catalog: Catalog, names: Iterable[str] = (), *, everything: bool = False) -> Scope:
    """These families; without names all that begin as declared keys do, known or not; or all keys."""
    names = tuple(names)
    if names:
        chosen = catalog.select(names)
        return Scope(common_glob(chosen), families=frozenset(one.full_name for one in chosen))
    roots = tuple(sorted({root for keyspace in catalog.keyspaces for root in _roots(keyspace)}))
    if everything or b"" in roots or not tuple(catalog):
        return Scope(b"*")
    heads = [*roots, *(one.pattern.head for one in catalog)]
    return Scope(escape_glob(common_head(heads)) + b"*", roots)


def _roots(keyspace: Keyspace) -> set[bytes]:
    """Where other keys of this system would be: under its prefix; without one, where its families begin."""
    if keyspace.prefix:
        return {keyspace.prefix.encode()}
    return {one.pattern.head for one in keyspace.declarations.values() if one.pattern.placeholders}


async def walk(
    store: Store, catalog: Catalog, scope: Scope, *, keys_per_s: float | None = None
) -> AsyncIterator[WalkPage]:
    loop = asyncio.get_running_loop()
    pace, fresh = Pace(keys_per_s, loop.time()), Fresh()
    async for listed in store.scan(scope.glob, count=PAGE_KEYS):
        keys = fresh.only(listed)
        for at in range(0, len(keys), PAGE_KEYS):
            part = keys[at : at + PAGE_KEYS]
            chosen = [(key, match) for key in part for match in (catalog.family_of(key),) if scope.takes(key, match)]
            yield await _look(store, chosen)
            await asyncio.sleep(pace.after(len(part), loop.time()))


async def look_at(store: Store, catalog: Catalog, keys: Iterable[bytes]) -> WalkPage:
    """The same for keys that are known by name."""
    return await _look(store, [(key, catalog.family_of(key)) for key in keys])


async def _look(store: Store, keys: list[tuple[bytes, Match | None]]) -> WalkPage:
    if not keys:
        return WalkPage([], 0)
    types = [store.send(b"TYPE", key) for key, _ in keys]
    lives = [store.send(b"PTTL", key) for key, _ in keys]
    answers = await replies([*types, *lives])
    found: list[Walked] = []
    for (key, match), type, ttl_ms in zip(keys, answers[: len(keys)], answers[len(keys) :], strict=True):
        name = type.decode() if isinstance(type, bytes) else str(type)
        if name != "none" and ttl_ms >= NO_TTL:
            found.append(Walked(key, match, name, ttl_ms))
    return WalkPage(found, len(keys) - len(found))


async def key_count(store: Store) -> int:
    """How many keys the databases hold in all: what a whole scan is measured against."""
    counts = await asyncio.gather(*(link.command(b"DBSIZE") for link in store.primaries()))
    return sum(int(count) for count in counts)

"""Where to look for what carries a tag, or depends on something: sets of pairs of a nonce and a key.

An entry is put into its indexes before it is written, and taken out after it is gone, so an index names too much at
times, never too little. The nonce tells one write of a key from the next: what is named is removed only if it is still
the write that was named.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from mpreg.cache.keys import DEPENDANTS, TAG
from mpreg.cache.record import Meta
from mpreg.cache.store_level import StoreLevel
from mpreg.store import Script

NONCE_CHARS: Final = 12
STRUCTURE: Final = "-" * NONCE_CHARS
"""The nonce of structures, which have no record to keep one in."""

_ADD: Final = Script.load("mpreg.cache", "lua/index_add.lua")


def new_meta(tags: tuple[str, ...], dependencies: tuple[str, ...]) -> Meta | None:
    """None for a value that no index names."""
    return Meta(secrets.token_hex(NONCE_CHARS // 2), tags, dependencies) if tags or dependencies else None


def tag_index(tag: str) -> bytes:
    return TAG.key(tag=tag)


def dependency_index(dependency: str) -> bytes:
    return DEPENDANTS.key(dependency=dependency)


class Indexes:
    def __init__(self, level: StoreLevel) -> None:
        self._level = level

    async def add(self, key: bytes, meta: Meta, ttl_ms: int) -> None:
        """`ttl_ms` is how long the entry lives at most; 0: it does not end."""
        member = meta.nonce.encode() + key
        await asyncio.gather(*(self._level.run(_ADD, index, member, ttl_ms) for index in _of(meta)))

    async def remove(self, key: bytes, meta: Meta) -> None:
        member = meta.nonce.encode() + key
        await asyncio.gather(*(self._level.command(b"ZREM", index, member) for index in _of(meta)))

    async def named(self, index: bytes, most: int) -> list[tuple[str, bytes]]:
        """Nonces and keys, the first so many."""
        members = await self._level.command(b"ZRANGE", index, 0, most - 1)
        return [(member[:NONCE_CHARS].decode(), member[NONCE_CHARS:]) for member in members]

    async def drop(self, index: bytes, named: list[tuple[str, bytes]]) -> None:
        if named:
            await self._level.command(b"ZREM", index, *(nonce.encode() + key for nonce, key in named))


def _of(meta: Meta) -> list[bytes]:
    return [*map(tag_index, meta.tags), *map(dependency_index, meta.dependencies)]

"""KEEP: what units keep for all to see; liveness and progress are such values under names of their own."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from typing import Any, Final

from mpreg.apps.muf import names, ttl
from mpreg.apps.muf.codecs import Codec, encoded
from mpreg.apps.muf.events import RETRY_S, Events
from mpreg.apps.muf.names import Name
from mpreg.errors import StoreError
from mpreg.store import Store

log = logging.getLogger(__name__)

ALIVE: Final = "alive"
ALIVE_TTL_S: Final = 15


class State:
    """Of one unit; it reads that of others as well."""

    def __init__(self, store: Store, unit: str, codec: Codec) -> None:
        self._store = store
        self._unit = unit
        self._codec = codec
        self._watching: set[asyncio.Event] = set()
        self._closed = False

    def close(self) -> None:
        """Who watches is told that there is no more to come."""
        self._closed = True
        for changed in self._watching:
            changed.set()

    async def keep(self, name: str, data: Any, ttl_s: float | None) -> None:
        key = self.key(name)
        expiry = () if ttl_s is None else ttl.expiry(ttl.check(ttl_s))
        await self._store.command(b"SET", key, encoded(self._codec, data), *expiry)

    async def kept(self, name: str, unit: str | None) -> Any:
        raw = await self._store.command(b"GET", self.key(name, unit))
        return None if raw is None else self._codec.decode(raw)

    async def watch(self, name: str, unit: str | None) -> AsyncIterator[Any]:
        key = self.key(name, unit)
        changed, was_told, last = asyncio.Event(), False, None

        def told(_: Name) -> None:
            nonlocal was_told
            was_told = True
            changed.set()

        events = Events(self._store, self._unit, told, changed.set, keys=[key])
        self._watching.add(changed)
        try:
            try:
                await events.start()
            except StoreError:
                if not self._closed:
                    raise
            while True:
                await changed.wait()
                if self._closed:
                    return
                changed.clear()
                is_new, was_told = was_told, False
                try:
                    raw = await self._store.command(b"GET", key)
                except StoreError as error:
                    if self._closed:
                        return
                    if not error.retryable:
                        raise
                    was_told = was_told or is_new
                    changed.set()
                    await asyncio.sleep(RETRY_S)
                    continue
                if raw is not None and (is_new or raw != last):
                    last = raw
                    yield self._codec.decode(raw)
        finally:
            self._watching.discard(changed)
            await events.close()

    def key(self, name: str, unit: str | None = None) -> bytes:
        owner = self._unit if unit is None else names.check("unit", unit)
        return Name(owner, "KEEP", names.check("name", name)).key

    # --- liveness -----------------------------------------------------------------------------------------------

    async def say_alive(self) -> None:
        who = f"{socket.gethostname()}-{os.getpid()}"
        await self._store.command(b"SET", self.key(ALIVE), who, *ttl.expiry(ALIVE_TTL_S))

    async def stay_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_TTL_S / 3)
            try:
                await self.say_alive()
            except StoreError as error:
                if not error.retryable:
                    log.warning("%s can't say any more that it lives: %s", self._unit, error.message)
                    return

    async def is_alive(self, unit: str) -> bool:
        return bool(await self._store.command(b"EXISTS", self.key(ALIVE, unit)))

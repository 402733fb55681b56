"""How nodes that share a store tell each other what has changed: a channel of the store, heard by all of them.

What is said in one turn of the loop is one message. Who was not connected for a while is told so, and then checks what
it holds by version (`Levels.missed`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from mpreg.cache.coherence import Update, meant, said
from mpreg.cache.keys import CHANGES
from mpreg.errors import StoreError
from mpreg.store import Gap, Store

log = logging.getLogger(__name__)

UPDATES_MAX: Final = 10_000
"""Of one turn. Past it the others are told that they have missed some."""
PAUSE_S: Final = 1.0

_CHANNEL: Final = CHANGES.channel()
_LOST: Final = Update("invalidate", b"", 0, pattern="")


class ChangesChannel:
    def __init__(self, store: Store, node: str, heard: Callable[[Update], None], missed: Callable[[], None]) -> None:
        self._store = store
        self._node = node
        self._heard = heard
        self._missed = missed
        self._loop = asyncio.get_running_loop()
        self._updates: list[Update] = []
        self._listening: asyncio.Task[None] | None = None
        self._acknowledged = asyncio.Event()

    async def start(self) -> None:
        self._listening = self._loop.create_task(self._listen())
        listening = self._loop.create_task(self._acknowledged.wait())
        await asyncio.wait([self._listening, listening], return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])

    def announce(self, update: Update) -> None:
        if not self._updates:
            self._loop.call_soon(self._publish)
        if len(self._updates) < UPDATES_MAX:
            self._updates.append(update)
        elif self._updates[-1] is not _LOST:
            self._updates.append(_LOST)

    def _publish(self) -> None:
        updates, self._updates = self._updates, []
        try:
            published = self._store.send(b"PUBLISH", _CHANNEL, said(self._node, updates))
        except StoreError as error:
            log.debug("Other nodes could not be told of changes: %s", error)
        else:
            published.add_done_callback(_read)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._store.subscribe([_CHANNEL]) as subscription:
                    self._missed()
                    self._acknowledged.set()
                    async for item in subscription:
                        if isinstance(item, Gap):
                            self._missed()
                        else:
                            self._take(item.data)
            except StoreError as error:
                if error.code == "STORE_CLOSED":
                    return
                log.warning("Changes that other nodes make are not heard at the moment: %s", error)
            self._missed()
            await asyncio.sleep(PAUSE_S)

    def _take(self, data: bytes) -> None:
        try:
            node, updates = meant(data)
        except msgspec.DecodeError:
            log.warning("Someone who is no node publishes on %s", _CHANNEL.decode())
            return
        if node == self._node:
            return
        for update in updates:
            if not update.key and not update.pattern:
                self._missed()
            else:
                self._heard(update)


def _read(published: asyncio.Future[int]) -> None:
    if not published.cancelled() and (error := published.exception()) is not None:
        log.debug("Other nodes could not be told of changes: %s", error)

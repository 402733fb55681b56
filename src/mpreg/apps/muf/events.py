"""Events of keys, for one side of a unit: who is told, what to do when some may have been missed, and how to go on
where the server tells of none (R-M9): then `missed` is called again and again instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from mpreg.apps.muf import names
from mpreg.apps.muf.names import Name
from mpreg.errors import StoreError
from mpreg.store import Gap, Store
from mpreg.store.key_events import KeyEvent, KeyItem

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
"""Without events: how often the keys themselves are looked at."""
RETRY_S: Final = 0.2


class Events:
    """Calls `told(name)` for each `set` of a key that fits the grammar, and `missed()` when there may have been others.

    `missed` is called once at the start, after every reconnect, and every `POLL_S` where there are no events.
    """

    def __init__(
        self,
        store: Store,
        unit: str,
        told: Callable[[Name], None],
        missed: Callable[[], None],
        *,
        patterns: Sequence[bytes] = (),
        keys: Sequence[bytes] = (),
    ) -> None:
        self.polls = False
        self.ignored = 0
        """Events of keys under `MUF/` that the grammar does not know (R-M2)."""
        self._store = store
        self._probe_key = Name(unit, "KEEP", ".probe").key
        self._patterns = patterns
        self._keys = keys
        self._told = told
        self._missed = missed
        self._proved = False
        self._failure: StoreError | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Returns when the server has acknowledged, or is known to tell of nothing."""
        self._task = asyncio.create_task(self._run(), name="muf events")
        await asyncio.wait([self._ready, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            self._task.result()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except StoreError as error:
                if error.code == "STORE_CLOSED":
                    if not self._ready.done():
                        raise
                    self._missed()  # whoever looks at a key now is told so
                    return
                if not error.retryable:
                    log.warning("Key events can't be had (%s); keys are polled", error.message)
                    break
            await asyncio.sleep(RETRY_S)
        self.polls = True
        self._is_ready()
        while True:
            await asyncio.sleep(POLL_S)
            self._missed()

    async def _listen(self) -> None:
        self._failure = None
        events = self._store.keyspace_events(
            *self._patterns, keys=self._keys, required=False, probe_key=self._probe_key, tell=self._heard
        )
        async with events:
            self._proved = False
            self._is_ready()
            while self._failure is None:
                self._changed.clear()
                self.polls = events.silent is not None and not self._proved
                try:
                    async with asyncio.timeout(POLL_S if self.polls else None):
                        await self._changed.wait()
                except TimeoutError:
                    self._missed()
        raise self._failure

    def _heard(self, item: KeyItem | StoreError) -> None:
        """At once, without waiting for a turn of the loop: each one is a part of the way that a call takes."""
        if isinstance(item, KeyEvent):
            if item.event == "set":  # R-M3
                if self.polls:
                    # A user who may neither read the setting nor probe it learns from this that events do come; of a
                    # cluster it says only that one server sends them.
                    self._proved = len(self._store.primaries()) == 1
                    self._changed.set()
                self._tell(item.key)
            return
        if isinstance(item, Gap):
            self._proved = False
            self._missed()
        else:
            self._failure = item
        self._changed.set()

    def _is_ready(self) -> None:
        if not self._ready.done():
            self._ready.set_result(None)
        self._missed()

    def _tell(self, key: bytes) -> None:
        name = names.parse(key)
        if name is None:
            self.ignored += 1
        else:
            self._told(name)

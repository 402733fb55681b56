"""What a queue says through the store: that there is something to take, how a broadcast stands, that it is deleted.

Listening may miss something (the connection breaks, the reader is slow); then `missed` is called, and whoever
listens looks for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mpreg.errors import StoreError
from mpreg.store import Gap

if TYPE_CHECKING:
    from mpreg.store import Store

log = logging.getLogger(__name__)

BEGIN_S: Final = 5.0
PAUSE_S: Final = 1.0


class Listening:
    """Of one queue. Begins with its first listener and ends with its last."""

    def __init__(
        self, store: Store, channel: bytes, heard: Callable[[bytes], None], missed: Callable[[], None]
    ) -> None:
        self._store = store
        self._channel = channel
        self._heard = heard
        self._missed = missed
        self._task: asyncio.Task[None] | None = None
        self._listens = asyncio.Event()

    async def begin(self) -> None:
        """Returns when whatever is said from now on is heard. Raises `STORE_UNAVAILABLE`."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._listen(), name="mpreg-queue-events")
        try:
            async with asyncio.timeout(BEGIN_S):
                await self._listens.wait()
        except TimeoutError:
            raise StoreError("STORE_UNAVAILABLE", "the store can't be listened to at the moment") from None

    def end(self) -> asyncio.Task[None] | None:
        """The task that ends, if there is any, to be awaited by whoever closes down."""
        task, self._task = self._task, None
        self._listens.clear()
        if task is not None:
            task.cancel()
        return task

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(StoreError):
                async with self._store.subscribe([self._channel]) as items:
                    self._listens.set()
                    self._missed()
                    async for item in items:
                        if isinstance(item, Gap):
                            self._missed()
                        else:
                            self._hear(item.data)
            self._listens.clear()
            await asyncio.sleep(PAUSE_S)

    def _hear(self, data: bytes) -> None:
        try:
            self._heard(data)
        except Exception:
            log.exception("What a queue says can't be understood")

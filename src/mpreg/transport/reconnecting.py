"""A link that comes back: dials one of several addresses again whenever the last link ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence

from mpreg.errors import MpregError, TransportError
from mpreg.transport.backoff import Backoff
from mpreg.transport.dialler import TIMEOUT_S, dial
from mpreg.transport.link import Link
from mpreg.transport.listener import Accept
from mpreg.transport.tls import TlsFiles
from mpreg.wire.limits import CLIENT, Limits


class Itinerary:
    """Which address is next, and after how long. Pure. A round tries every address without a pause, starting with
    the one that worked last; after each round comes a pause that grows."""

    __slots__ = ("_backoff", "_position", "_tried", "urls")

    def __init__(self, urls: Sequence[str], backoff: Backoff) -> None:
        if not urls:
            raise ValueError("at least one address is needed")
        self.urls = tuple(urls)
        self._backoff = backoff
        self._position = 0
        self._tried = 0

    def next(self, random: float) -> tuple[str, float]:
        """An address, and the pause before it is dialled."""
        pause_s = 0.0
        if self._tried == len(self.urls):
            self._tried = 0
            pause_s = self._backoff.next_s(random)
        return self.urls[self._position], pause_s

    def failed(self) -> None:
        self._tried += 1
        self._position = (self._position + 1) % len(self.urls)

    def connected(self) -> None:
        """The next round starts here. It counts as tried, so that a peer which accepts and hangs up at once is not
        dialled in a tight circle."""
        self._tried = 0

    def lasted(self) -> None:
        """A link has proved itself: the next pause is short again."""
        self._backoff.reset()


class Reconnecting:
    """`link` is the present link, or `None` between two. `accept` is called for each new one.

    async with Reconnecting(["ws://a:6666", "ws://b:6666"], accept) as connection:
        link = await connection.connected()
    """

    def __init__(
        self,
        urls: Sequence[str],
        accept: Accept,
        *,
        limits: Limits = CLIENT,
        tls: TlsFiles | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        backoff: Backoff | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.link: Link | None = None
        self.error: MpregError | None = None
        """Why the last attempt failed."""
        self._accept = accept
        self._limits = limits
        self._tls = tls
        self._headers = headers
        self._timeout_s = timeout_s
        self._itinerary = Itinerary(urls, backoff or Backoff())
        self._jitter = jitter
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def connected(self) -> Link:
        """The present link, or the next one. Raises `TRANSPORT_CLOSED` once this is closed."""
        while not self._closed:
            if self.link is not None and not self.link.closed:
                return self.link
            self._changed.clear()
            await self._changed.wait()
        raise TransportError("TRANSPORT_CLOSED", "This side has closed the link")

    async def close(self) -> None:
        self._closed = True
        self._changed.set()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        link, self.link = self.link, None
        if link is not None:
            link.close()
            await link.wait_closed()

    async def __aenter__(self) -> Reconnecting:
        self._task = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _keep(self) -> None:
        while True:
            url, pause_s = self._itinerary.next(self._jitter())
            if pause_s:
                await asyncio.sleep(pause_s)
            try:
                self.link = await dial(
                    url,
                    self._accept,
                    limits=self._limits,
                    tls=self._tls,
                    headers=self._headers,
                    timeout_s=self._timeout_s,
                )
            except MpregError as error:
                self.error = error
                self._itinerary.failed()
                self._changed.set()
                continue
            self.error = None
            self._itinerary.connected()
            self._changed.set()
            began = asyncio.get_running_loop().time()
            await self.link.wait_closed()
            if asyncio.get_running_loop().time() - began >= self._limits.handshake_timeout_s:
                self._itinerary.lasted()
            else:
                self._itinerary.failed()
            self.link = None

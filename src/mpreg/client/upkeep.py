"""Keeps a client connected: one link at a time, to one of several nodes, again whenever it ends."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

from mpreg.client.connection import Connection
from mpreg.client.exchange import Exchange
from mpreg.client.settings import ClientSettings
from mpreg.client.sources import Address, Source
from mpreg.errors import MpregError
from mpreg.transport import Backoff, Link

log = logging.getLogger(__name__)

STABLE_S = 5.0
"""A connection that held this long ends a series of failures; else a node that refuses us at once would be
asked without a pause."""

PAUSE_S_MAX = 5.0
"""Between two rounds of attempts; a node that restarts is found again within this time."""

Reconnected = Callable[[], Awaitable[None]]


class Upkeep:
    def __init__(self, sources: Sequence[Source], exchange: Exchange, settings: ClientSettings) -> None:
        self._sources = list(sources)
        self._given = [source for source in sources if isinstance(source, Address)]
        self._exchange = exchange
        self._patience_s = settings.patience_s
        self._backoff = Backoff(max_s=PAUSE_S_MAX)
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self.on_reconnected: list[Reconnected] = []

    @property
    def schemes(self) -> set[str]:
        """Of the addresses that the program gave."""
        return {source.url.partition(":")[0] for source in self._given}

    def learn(self, urls: Sequence[str]) -> None:
        """These, besides those that the program gave, are where a node may be. The order of attempts stays."""
        given = {source.url for source in self._given}
        wanted = {url: None for url in urls if url not in given}
        kept = [
            each for each in self._sources if not isinstance(each, Address) or each.url in given or each.url in wanted
        ]
        known = {each.url for each in kept if isinstance(each, Address)}
        self._sources = kept + [self._given[0].at(url) for url in wanted if url not in known]

    async def start(self) -> None:
        """Returns when there is a connection. Raises why there is none, and leaves nothing behind then."""
        self._task = asyncio.create_task(self._keep(), name="mpreg-client")
        try:
            await self._first
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while (connection := await self._reach()) is not None:
            since = loop.time()
            self._exchange.use(connection)
            if self._first.done():
                await self._tell_reconnected(connection)
            else:
                self._first.set_result(None)
            await connection.gone.wait()
            if loop.time() - since >= STABLE_S:
                self._backoff.reset()
            else:
                await asyncio.sleep(self._backoff.next_s(random.random()))

    async def _reach(self) -> Connection | None:
        """A connection to the next node that can be reached; None when the first attempts have failed for good."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._patience_s
        while True:
            try:
                return await self._try_all()
            except MpregError as error:
                if not self._first.done() and loop.time() >= give_up:
                    self._first.set_exception(error)
                    return None
                pause = self._backoff.next_s(random.random())
                log.debug("No node can be reached, again in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)

    async def _try_all(self) -> Connection:
        """Every source once. Raises what the last one said."""
        tries = len(self._sources)
        for number in range(tries):
            source = self._sources.pop(0)
            self._sources.append(source)
            connections: list[Connection] = []

            def accept(link: Link, found: list[Connection] = connections) -> Connection:
                found.append(self._exchange.accept(link))
                return found[-1]

            try:
                await source.dial(accept)
            except MpregError:
                if number == tries - 1:
                    raise
            else:
                return connections[0]
        raise AssertionError("there is at least one source")

    async def _tell_reconnected(self, connection: Connection) -> None:
        """As long as the connection is there: what waits for the next one must not keep us from making it."""
        telling = asyncio.create_task(self._tell_all(), name="mpreg-reconnected")
        gone = asyncio.create_task(connection.gone.wait())
        try:
            await asyncio.wait({telling, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            telling.cancel()
            gone.cancel()
            await asyncio.wait({telling, gone})

    async def _tell_all(self) -> None:
        for tell in self.on_reconnected:
            try:
                await tell()
            except MpregError as error:
                log.warning("After a reconnect: %s", error)
            except Exception:
                log.exception("After a reconnect")

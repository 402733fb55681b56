"""What all handles of a client's cache share: the way to the node, what is held near, computations under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import UNSET

from mpreg.client.cache_near import Near, NearCache, NearKey
from mpreg.client.connection import Connection
from mpreg.client.exchange import Exchange
from mpreg.wire.cache import CacheChanged, CacheEntry, CacheRequest, CacheResponse, CacheWatch
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import to_exception
from mpreg.wire.message import Message

M = TypeVar("M", bound=Message)


class Asking(Protocol):
    """Of the client."""

    def new_u(self) -> str: ...

    async def ask(self, message: Message, reply_type: type[M], *, timeout: float | None = None) -> M: ...

    def on(self, message_type: type[Message], handler: Callable[[Any, Encoding], None]) -> None: ...


class Caches:
    def __init__(self, client: Asking, exchange: Exchange, encoding: Encoding, timeout_s: float) -> None:
        self.encoding = encoding
        self.timeout_s = timeout_s
        self.computing: dict[tuple[str, str, str], asyncio.Task[Any]] = {}
        self._client = client
        self._exchange = exchange
        self._watched_on: Connection | None = None
        self._near: dict[str, NearCache] = {}
        self._listeners: list[Callable[[CacheChanged], None]] = []
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        client.on(CacheChanged, self._changed)

    async def ask(self, operation: Any, *, timeout: float | None = None, **fields: Any) -> CacheResponse:
        """Raises what the node answers with an error, as `CacheError` and others."""
        timeout_s = self.timeout_s if timeout is None else timeout
        request = CacheRequest(u=self._client.new_u(), operation=operation, **fields)
        # The node gives up first, and says why.
        response = await self._client.ask(request, CacheResponse, timeout=timeout_s + 2)
        if response.error is not UNSET:
            raise to_exception(response.error)
        return response

    async def send(self, message: Message, reply_type: type[M]) -> M:
        return await self._client.ask(message, reply_type)

    def new_u(self) -> str:
        return self._client.new_u()

    # --- near ---------------------------------------------------------------------------------------------------------

    async def near(self, namespace: str, entries_max: int) -> NearCache:
        """Of a namespace, watched from when this returns."""
        near = self._near.get(namespace)
        if near is None:
            near = self._near[namespace] = NearCache(entries_max)
        near.entries_max = max(near.entries_max, entries_max)
        if self.is_near(namespace) is None:
            if self._watching is None:
                self._watching = asyncio.get_running_loop().create_task(self._watch())
                self._watching.add_done_callback(self._watched)
            await asyncio.shield(self._watching)
        return near

    def is_near(self, namespace: str) -> NearCache | None:
        near = self._near.get(namespace)
        watched = near is not None and near.is_watched and self._watched_on is self._exchange.current
        return near if watched else None

    async def listen(self, namespace: str, listener: Callable[[CacheChanged], None]) -> None:
        """Be told of changes of a namespace, as the node tells them."""
        self._listeners.append(listener)
        await self.near(namespace, 1)

    async def _watch(self) -> None:
        namespaces, connection = tuple(self._near), self._exchange.current
        if connection is not self._watched_on:
            self._watched_on = None
            self.disconnected()
        await self._client.ask(CacheWatch(u=self._client.new_u(), namespaces=namespaces), CacheResponse)
        for namespace in namespaces:
            self._near[namespace].is_watched = True
        self._watched_on = connection if self._exchange.current is connection else None

    def _watched(self, task: asyncio.Task[None]) -> None:
        self._watching = None
        if not task.cancelled():
            task.exception()

    def _changed(self, told: CacheChanged, encoding: Encoding) -> None:
        for near in self._near.values():
            near.changed(told)
        for listener in self._listeners:
            listener(told)

    async def reconnected(self) -> None:
        """Whatever was held may be out of date, and nobody has told."""
        self.disconnected()
        if self._near:
            lost = CacheChanged(changes=(), lost=True)
            for listener in self._listeners:
                listener(lost)
            await self._watch()

    def disconnected(self) -> None:
        for near in self._near.values():
            near.is_watched = False
            near.forget()

    def take(self, near: NearCache, key: NearKey, entry: CacheEntry | None, asked: float, stale: bool) -> None:
        """What the node has answered, to be held as long as it lives."""
        if entry is None or stale or entry.version is UNSET:
            near.answered(key, None)
            return
        left = entry.ttl_remaining
        until = float("inf") if left is UNSET or left is None else asked + left
        near.answered(key, Near(entry.value, entry.version, until))

    # --- beside -------------------------------------------------------------------------------------------------------

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def close(self) -> None:
        self.disconnected()
        tasks = [*self._tasks, *([self._watching] if self._watching is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

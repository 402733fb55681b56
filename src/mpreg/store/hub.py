"""One connection for all subscriptions of a store at one server. Each channel and pattern is subscribed once, however
many readers it has; after a reconnect all are subscribed again, acknowledged, and only then the readers see the gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal

from mpreg.errors import StoreError
from mpreg.store.dial import Dial
from mpreg.store.link import silence
from mpreg.store.replies import StoreReplyError
from mpreg.store.server_link import ServerLink
from mpreg.store.subscription import Message, Reader
from mpreg.store.url import Address

Name = tuple[Literal["SUBSCRIBE", "PSUBSCRIBE"], bytes]


def names(channels: Iterable[str | bytes] = (), patterns: Iterable[str | bytes] = ()) -> frozenset[Name]:
    return frozenset(
        [("SUBSCRIBE", _bytes(channel)) for channel in channels]
        + [("PSUBSCRIBE", _bytes(pattern)) for pattern in patterns]
    )


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


class Hub:
    def __init__(
        self, where: Callable[[], Awaitable[Address]], how: Dial, *, again: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`again` runs after all is subscribed anew, before the readers hear of it."""
        self._and_then = again
        self.probe_timeout_s = how.limits.probe_timeout_s
        self._names_max = how.limits.channels_max
        self._readers: dict[Name, set[Reader]] = {}
        self._acknowledged: set[Reader] = set()
        self._again: asyncio.Task[None] | None = None
        self.link = ServerLink(where, how, shared=False, on_push=self._on_push, on_up=self._on_up)

    def start(self) -> None:
        self.link.start()

    async def add(self, inbox: Reader, wanted: Iterable[Name]) -> None:
        """Returns when the server has acknowledged all of them."""
        wanted = list(wanted)
        new = sum(name not in self._readers for name in wanted)
        if len(self._readers) + new > self._names_max:
            why = f"{len(self._readers)} channels and patterns are subscribed; the limit is {self._names_max}"
            raise StoreError("STORE_BUSY", why, limit=self._names_max)
        for name in wanted:
            self._readers.setdefault(name, set()).add(inbox)
        while True:
            connection = self.link.connections
            try:
                await self._subscribe(wanted)
            except StoreError as error:
                if error.code != "STORE_CONNECTION_LOST":
                    raise
            else:
                if connection == self.link.connections:
                    break
        self._acknowledged.add(inbox)

    def adopt(self, inbox: Reader, wanted: Iterable[Name]) -> None:
        """As `add`, before `start` and without waiting: a reader who has begun elsewhere sees a gap when it is done."""
        for name in wanted:
            self._readers.setdefault(name, set()).add(inbox)
        self._acknowledged.add(inbox)

    def remove(self, inbox: Reader, wanted: Iterable[Name]) -> None:
        self._acknowledged.discard(inbox)
        for name in wanted:
            readers = self._readers.get(name)
            if readers is None:
                continue
            readers.discard(inbox)
            if not readers:
                del self._readers[name]
                if self.link.is_up:
                    silence(self.link.send(b"UNSUBSCRIBE" if name[0] == "SUBSCRIBE" else b"PUNSUBSCRIBE", name[1]))

    async def close(self, error: StoreError | None = None) -> None:
        """With an error: the readers get it after what they still have."""
        if self._again is not None:
            self._again.cancel()
            await asyncio.wait([self._again])
        await self.link.close()
        for inbox in {inbox for readers in self._readers.values() for inbox in readers}:
            if error is not None:
                inbox.fail(error)
        self._readers.clear()

    async def _subscribe(self, wanted: Iterable[Name]) -> None:
        sent = [self.link.send(verb.encode(), name) for verb, name in wanted]
        for future in sent:
            silence(future)
        for future in sent:
            await future

    def _on_up(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._readers:
            self._again = asyncio.get_running_loop().create_task(self._subscribe_again())

    async def _subscribe_again(self) -> None:
        """One task a connection; the next connection replaces it."""
        known = self._acknowledged.copy()
        try:
            await self._subscribe(list(self._readers))
            if self._and_then is not None:
                await self._and_then()
        except StoreError as error:
            # What the network says is followed by another connection; what the server says stays.
            if isinstance(error, StoreReplyError):
                for inbox in known & self._acknowledged:
                    inbox.fail(error)
            return
        for inbox in known & self._acknowledged:
            inbox.reconnected()

    def _on_push(self, push: list[Any]) -> None:
        match push:
            case [b"message", channel, data]:
                self._deliver(("SUBSCRIBE", channel), Message(channel, None, data))
            case [b"pmessage", pattern, channel, data]:
                self._deliver(("PSUBSCRIBE", pattern), Message(channel, pattern, data))

    def _deliver(self, name: Name, message: Message) -> None:
        for inbox in self._readers.get(name, ()):
            inbox.put(message)

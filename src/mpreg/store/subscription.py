"""What a subscriber reads: messages, and a mark wherever some may be missing.

    async with store.subscribe(channels=["news"], patterns=["log.*"]) as subscription:   # acknowledged here
        async for item in subscription:
            match item:
                case Message(channel=channel, data=data): ...
                case Gap(): ...          # read again what you derive from messages

Valkey forgets a message as soon as it has sent it, so a subscription promises no more than to say where a hole may be.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, Self, TypeAlias

import msgspec

from mpreg.errors import StoreError


class Message(msgspec.Struct, frozen=True):
    channel: bytes
    pattern: bytes | None
    """The pattern that it came by; None if by the channel's own name."""
    data: bytes


class Gap(msgspec.Struct, frozen=True):
    """Messages may be missing here. After `reconnect` (also: another server has taken over) the subscription is
    acknowledged anew before this mark comes, so what is read upon it misses nothing."""

    why: Literal["reconnect", "overflow"]
    dropped: int = 0
    """How many messages, if that is known: the reader was slow and the oldest went."""


Item: TypeAlias = Message | Gap


class Reader(Protocol):
    """Whom a hub tells, in the event loop."""

    def put(self, item: Item) -> None: ...

    def reconnected(self) -> None: ...

    def fail(self, error: StoreError) -> None:
        """There will be no more."""


class Inbox:
    """What waits for one reader: bounded, the oldest goes, and the reader learns how many went."""

    def __init__(self, messages_max: int) -> None:
        self._items: deque[Item] = deque()
        self._max = messages_max
        self._dropped = 0
        self._failure: StoreError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        if len(self._items) >= self._max:
            gone = self._items.popleft()
            self._dropped += gone.dropped if isinstance(gone, Gap) else 1
        self._items.append(item)
        self._wake()

    def reconnected(self) -> None:
        """Several gaps in a row are one."""
        if not self._items or not isinstance(self._items[-1], Gap):
            self.put(Gap("reconnect"))

    def fail(self, error: StoreError) -> None:
        """The reader gets what is there, then this."""
        self._failure = self._failure or error
        self._wake()

    async def get(self) -> Item:
        """A caller that is cancelled has taken nothing."""
        while True:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                return Gap("overflow", dropped)
            if self._items:
                return self._items.popleft()
            if self._failure is not None:
                raise StoreError(self._failure.code, self._failure.message, **self._failure.details)
            if self._waiter is None or self._waiter.done():
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            else:
                # The future of the reader who came first: when that one is cancelled, this one looks again.
                await asyncio.wait([self._waiter])

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Subscription:
    """Made by `store.subscribe`; it begins and ends with its `async with`."""

    def __init__(
        self,
        inbox: Inbox,
        enter: Callable[[Inbox], Awaitable[None]],
        leave: Callable[[Inbox], None],
    ) -> None:
        self._inbox = inbox
        self._enter = enter
        self._leave = leave

    async def __aenter__(self) -> Self:
        try:
            await self._enter(self._inbox)
        except BaseException:
            self._leave(self._inbox)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave(self._inbox)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        return await self._inbox.get()

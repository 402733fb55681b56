"""Keyspace events: who writes to a key hears nothing, who watches it does.

    async with store.keyspace_events("orders:*", needs="$g") as events:
        async for item in events:
            match item:
                case KeyEvent(key=key, event="set"): ...
                case Gap(): ...     # events may be missing: read the keys again

Servers send them only when told to, each primary of a cluster sends only its own, and all forget them at once. So the
flags are checked (and added, never taken away), every primary is subscribed, also one that becomes a primary later,
and each hole is marked. Where a server does not send them and can't be told to, `events.silent` says why, and the
caller polls; one that does not want to poll leaves `required` on and gets the error at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Self, TypeAlias

import msgspec

from mpreg.errors import StoreError
from mpreg.store.dial import Dial
from mpreg.store.hub import Hub, Name, names
from mpreg.store.notify import Silence, check_classes, ensure
from mpreg.store.servers import Servers
from mpreg.store.subscription import Gap, Inbox, Item, Message, Reader

logger = logging.getLogger(__name__)

PROBE_KEY = "mpreg:probe"


class KeyEvent(msgspec.Struct, frozen=True):
    key: bytes
    event: str
    """As the server names what happened: `set`, `del`, `expired`, `hset`, …"""


KeyItem: TypeAlias = KeyEvent | Gap
Tell: TypeAlias = Callable[[KeyItem | StoreError], None]


class Interest(msgspec.Struct, frozen=True, kw_only=True):
    """What one reader watches."""

    channels: frozenset[Name]
    classes: str
    configure: bool
    required: bool
    probe_key: bytes


class KeyEvents:
    """Made by `store.keyspace_events`; it begins and ends with its `async with`."""

    def __init__(self, source: EventSource, interest: Interest, messages_max: int, tell: Tell | None = None) -> None:
        self._source = source
        self.interest = interest
        self._inbox = Inbox(messages_max)
        self.reader: Reader = self._inbox if tell is None else _Told(tell)
        self.silences: dict[Hashable, Silence] = {}

    @property
    def silent(self) -> str | None:
        """Why some server sends no events at the moment; None while all do. It may change with every Gap."""
        if not self.silences:
            return None
        return "; ".join(sorted({silence.why for silence in self.silences.values()}))

    async def __aenter__(self) -> Self:
        try:
            await self._source.add(self)
        except BaseException:
            self._source.remove(self)
            raise
        if self.silent is not None:
            if self.interest.required:
                self._source.remove(self)
                raise StoreError(
                    "STORE_NO_EVENTS",
                    f"the store sends no keyspace events: {self.silent}",
                    needed="K" + self.interest.classes,
                    found=next(iter(self.silences.values())).found,
                )
            logger.warning("keyspace events do not come, keys have to be polled: %s", self.silent)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._source.remove(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> KeyItem:
        item = await self._inbox.get()
        return item if isinstance(item, Gap) else _event(item)


def _event(message: Message) -> KeyEvent:
    # __keyspace@<db>__:<key>
    return KeyEvent(message.channel.partition(b"__:")[2], message.data.decode("latin-1"))


class _Told:
    """For who does not iterate: each item as it arrives, before the next one is looked at; nothing waits."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def put(self, item: Item) -> None:
        try:
            self._tell(_event(item) if isinstance(item, Message) else item)
        except Exception:
            logger.exception("A keyspace event could not be handled")

    def reconnected(self) -> None:
        self.put(Gap("reconnect"))

    def fail(self, error: StoreError) -> None:
        self._tell(error)


class EventSource:
    """A subscribing connection to every primary, shared by all readers of a store."""

    def __init__(self, servers: Servers, how: Dial, database: int) -> None:
        self._servers = servers
        self._how = how
        self._database = database
        self._hubs: dict[Hashable, Hub] = {}
        self._readers: set[KeyEvents] = set()
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        servers.watch(self._on_change)

    def interest(
        self,
        patterns: tuple[str | bytes, ...],
        keys: tuple[str | bytes, ...],
        *,
        needs: str,
        configure: bool,
        required: bool,
        probe_key: str | bytes,
    ) -> Interest:
        if not patterns and not keys:
            raise StoreError("STORE_INVALID_COMMAND", "watching needs at least one key or pattern of keys")
        start = b"__keyspace@%d__:" % self._database
        channels = names(
            channels=[start + (key.encode() if isinstance(key, str) else key) for key in keys],
            patterns=[start + (pattern.encode() if isinstance(pattern, str) else pattern) for pattern in patterns],
        )
        return Interest(
            channels=channels,
            classes=check_classes(needs),
            configure=configure,
            required=required,
            probe_key=probe_key.encode() if isinstance(probe_key, str) else probe_key,
        )

    async def add(self, reader: KeyEvents) -> None:
        async with self._changing:
            if self._closed:
                raise StoreError("STORE_CLOSED", "the store is closed")
            await self._follow()
            for name in self._hubs:
                await self._hubs[name].add(reader.reader, reader.interest.channels)
                await self._check(reader, name)
            self._readers.add(reader)

    def remove(self, reader: KeyEvents) -> None:
        self._readers.discard(reader)
        for hub in self._hubs.values():
            hub.remove(reader.reader, reader.interest.channels)

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for hub in self._hubs.values():
            await hub.close(StoreError("STORE_CLOSED", "the store is closed"))

    async def _check(self, reader: KeyEvents, name: Hashable) -> None:
        place = self._servers.places().get(name)
        if place is None:  # it has just ceased to be a primary
            return
        interest = reader.interest
        try:
            await ensure(
                self._hubs[name],
                place.link,
                interest.classes,
                configure=interest.configure,
                database=self._database,
                probe_key=interest.probe_key,
                slot=place.slot,
            )
        except Silence as silence:
            reader.silences[name] = silence
        else:
            reader.silences.pop(name, None)

    def _again(self, name: Hashable) -> Callable[[], Awaitable[None]]:
        async def check_all() -> None:
            for reader in list(self._readers):
                await self._check(reader, name)
                if name in reader.silences:
                    logger.warning("keyspace events do not come any more: %s", reader.silences[name].why)

        return check_all

    # --- a topology that changes --------------------------------------------------------------------------------

    def _on_change(self) -> None:
        if not self._closed and self._readers:
            task = asyncio.get_running_loop().create_task(self._change())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _change(self) -> None:
        async with self._changing:
            await self._follow()

    async def _follow(self) -> None:
        """A hub for each primary that there is now, with all readers who have begun."""
        places = self._servers.places()
        for name in [name for name in self._hubs if name not in places]:
            for reader in self._readers:
                reader.silences.pop(name, None)
            await self._hubs.pop(name).close()
        for name, place in places.items():
            if name not in self._hubs:
                self._hubs[name] = hub = Hub(place.where, self._how, again=self._again(name))
                for reader in self._readers:
                    hub.adopt(reader.reader, reader.interest.channels)
                hub.start()

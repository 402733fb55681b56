"""What a store asks of the servers behind it: one server (this file), one behind sentinels, or a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from mpreg.store.dial import Dial, Server
from mpreg.store.link import Argument
from mpreg.store.script import Script
from mpreg.store.server_link import ServerLink
from mpreg.store.url import Address

Where = Callable[[], Awaitable[Address]]


class Holding(msgspec.Struct, frozen=True):
    """The slots of one primary of a cluster: its own, and those that it is being given at the moment."""

    slots: frozenset[int] = frozenset()
    importing: frozenset[int] = frozenset()


class Place(msgspec.Struct, frozen=True):
    where: Where
    link: ServerLink
    slot: int | None
    """A slot of its own, in a cluster."""


class Servers(Protocol):
    @property
    def server(self) -> Server | None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def send(self, *args: Argument) -> asyncio.Future[Any]: ...

    async def command(self, *args: Argument) -> Any: ...

    def send_script(
        self, script: Script, keys: Iterable[Argument] = (), args: Iterable[Argument] = ()
    ) -> asyncio.Future[Any]: ...

    async def script(self, script: Script, keys: Iterable[Argument] = (), args: Iterable[Argument] = ()) -> Any: ...

    def primaries(self) -> list[ServerLink]: ...

    async def layout(self) -> Mapping[ServerLink, Holding]:
        """Who holds what right now, asked anew."""

    def where(self, key: bytes | None) -> Where:
        """Finds the server of a key, or any primary, whenever it is called."""

    def places(self) -> Mapping[Hashable, Place]:
        """Every primary that there is now, under a name that stays with it."""

    def watch(self, changed: Callable[[], None]) -> None:
        """`changed` is called whenever `places` has become another."""


def fixed(address: Address) -> Where:
    async def where() -> Address:
        return address

    return where


class Single:
    """One server, or whichever one `where` names when the link is dialled."""

    def __init__(self, where: Where, how: Dial, on_up: Callable[[], None] | None = None) -> None:
        self._where = where
        self.link = ServerLink(where, how, on_up=on_up)
        self.send = self.link.send
        self.command = self.link.command
        self.send_script = self.link.send_script
        self.script = self.link.script

    @property
    def server(self) -> Server | None:
        return self.link.server

    async def open(self) -> None:
        await self.link.connect()

    async def close(self) -> None:
        await self.link.close()

    def primaries(self) -> list[ServerLink]:
        return [self.link]

    async def layout(self) -> Mapping[ServerLink, Holding]:
        return {self.link: Holding()}

    def where(self, key: bytes | None) -> Where:
        return self._where

    def places(self) -> Mapping[Hashable, Place]:
        return {"": Place(self._where, self.link, None)}

    def watch(self, changed: Callable[[], None]) -> None:
        """One server stays one server."""

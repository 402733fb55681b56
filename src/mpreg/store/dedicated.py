"""A connection of one caller's own, for what a shared one can't carry: commands that block, transactions, WATCH.

    async with store.dedicated() as link:
        item = await link.command("BLMOVE", "jobs", "mine", "LEFT", "RIGHT", 0)

It is opened once. When it breaks, every later command fails too (STORE_CONNECTION_LOST), for what was said on it before
is forgotten by the server; leave the block and enter another one. A caller that is cancelled in a blocking command
must do the same: the server may still answer it, and what it took from a list is then in nobody's hands. Leaving the
block closes the connection, which ends a blocked command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self

import msgspec

from mpreg.errors import StoreError
from mpreg.store.dial import Dial, Server, dial
from mpreg.store.link import Argument, Link, Pending, pack, unpack
from mpreg.store.replies import StoreReplyError
from mpreg.store.script import Script
from mpreg.store.url import Address


class Dedicated:
    def __init__(self, where: Callable[[], Awaitable[Address]], how: Dial) -> None:
        self._where = where
        self._how = msgspec.structs.replace(how, beats=False)
        self._link: Link | None = None
        self._scripts: dict[bytes, Script] = {}
        self.server: Server | None = None

    async def __aenter__(self) -> Self:
        self._link, self.server = await dial(await self._where(), self._how, self)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._link is not None
        self._link.lose(StoreError("STORE_CLOSED", "the dedicated connection is closed"))
        await asyncio.shield(self._link.closed)

    def send(self, *args: Argument) -> asyncio.Future[Any]:
        assert self._link is not None, "enter `async with` first"
        return self._link.send(*args)

    async def command(self, *args: Argument) -> Any:
        return await self.send(*args)

    def send_script(
        self, script: Script, keys: Iterable[Argument] = (), args: Iterable[Argument] = ()
    ) -> asyncio.Future[Any]:
        self._scripts.setdefault(script.sha, script)
        keys = tuple(keys)
        return self.send(b"EVALSHA", script.sha, len(keys), *keys, *args)

    async def script(self, script: Script, keys: Iterable[Argument] = (), args: Iterable[Argument] = ()) -> Any:
        return await self.send_script(script, keys, args)

    # --- LinkOwner ----------------------------------------------------------------------------------------------

    def on_error_reply(self, link: Link, error: StoreReplyError, pending: Pending) -> bool:
        if error.details["reply"] != "NOSCRIPT":
            return False
        args = unpack(pending[1])
        script = self._scripts.get(args[1])
        if script is None:
            return False
        link.again(pack((b"EVAL", script.source, *args[2:])), pending[0])
        return True

    def on_push(self, link: Link, push: list[Any]) -> None:
        """Nobody subscribes here."""

    def on_room(self) -> None:
        """Nobody waits for room: one caller alone does not fill a link."""

    def on_lost(self, link: Link, error: StoreError, unsent: list[Pending]) -> None:
        for future, _ in unsent:
            if not future.done():
                future.set_exception(StoreError(error.code, error.message, state_changed=False))

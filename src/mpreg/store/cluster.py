"""Commands to a cluster: each goes to the server of its keys' slot, and follows the slot when it moves.

Commands of one turn of the loop are grouped by server, as each link writes once a turn. The order of one caller's
commands is kept for keys of one slot, while the slot stays where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from mpreg.errors import StoreError
from mpreg.store.command_keys import FIRST_ONLY, Where, as_bytes, keys_of, pick, positions, upper
from mpreg.store.commands import SUSPECT_ON_SHARED, refuse_on_shared
from mpreg.store.dial import Dial, Server
from mpreg.store.link import Argument, Pending, pack, unpack
from mpreg.store.replies import StoreReplyError
from mpreg.store.script import Script
from mpreg.store.server_link import ScriptTable, ServerLink
from mpreg.store.servers import Place, fixed
from mpreg.store.servers import Where as Finder
from mpreg.store.slots import read_redirection, slot_of
from mpreg.store.topology import Topology
from mpreg.store.url import Address

_ASKING = pack((b"ASKING",))
_PAUSE_MAX_S = 1.0


class Detour:
    """A command that was not where it should have gone."""

    __slots__ = ("deadline", "redirections", "waits")

    def __init__(self, deadline: float) -> None:
        self.redirections = 0
        self.waits = 0
        self.deadline = deadline


class Cluster:
    def __init__(self, seeds: Sequence[Address], how: Dial) -> None:
        self._limits = how.limits
        self._loop = asyncio.get_running_loop()
        self._scripts: ScriptTable = {}
        self._learned: dict[str, Where] = {}
        self._detours: dict[asyncio.Future[Any], Detour] = {}
        self._waiting: dict[asyncio.Future[Any], asyncio.TimerHandle] = {}
        self._learning: set[asyncio.Task[None]] = set()
        self._closed = False
        self._topology = Topology(
            seeds, how, scripts=self._scripts, redirect=self._redirect, hand_back=self._route_again
        )
        self._owners = self._topology.owners
        self.open = self._topology.open
        self.layout = self._topology.layout
        self.watch = self._topology.watch

    @property
    def server(self) -> Server | None:
        return self._topology.server

    async def close(self) -> None:
        self._closed = True
        for future, timer in self._waiting.items():
            timer.cancel()
            if not future.done():
                future.set_exception(StoreError("STORE_CLOSED", "the store is closed"))
        self._waiting.clear()
        self._topology.end()
        for task in self._learning:
            task.cancel()
        if self._learning:
            await asyncio.wait(self._learning)
        await self._topology.close()

    def primaries(self) -> list[ServerLink]:
        return [link for link, _ in self._topology.primaries().values()]

    def places(self) -> Mapping[Hashable, Place]:
        return {
            address: Place(fixed(address), link, slot) for address, (link, slot) in self._topology.primaries().items()
        }

    def where(self, key: bytes | None) -> Finder:
        async def find() -> Address:
            link = self._topology.any() if key is None else self._owners[slot_of(key)]
            if link is None or link.address is None:
                raise StoreError("STORE_CLUSTER_DOWN", f"no server has the slot of {key!r} at the moment")
            return link.address

        return find

    # --- commands -----------------------------------------------------------------------------------------------

    def send(self, *args: Argument) -> asyncio.Future[Any]:
        data = pack(args)
        future: asyncio.Future[Any] = self._loop.create_future()
        if args[0] in FIRST_ONLY and len(args) > 1:
            key = args[1]
            link = self._owners[slot_of(key if type(key) is bytes else as_bytes(key))]
        else:
            if args[0] in SUSPECT_ON_SHARED:
                refuse_on_shared(args)
            keys = keys_of(args, self._learned)
            if keys is None:
                self._learn(args, (future, data))
                return future
            link = self._link_for(args, keys)
        if link is None:
            if self._closed:
                raise StoreError("STORE_CLOSED", "the store is closed")
            if len(self._waiting) >= self._limits.pending_commands_max:
                raise StoreError("STORE_BUSY", f"{len(self._waiting)} commands wait for servers of their slots")
            self._wait((future, data))
            return future
        return link.put(data, future)

    async def command(self, *args: Argument) -> Any:
        deadline = self._loop.time() + self._limits.down_wait_s
        while True:
            try:
                future = self.send(*args)
            except StoreError as error:
                if error.code != "STORE_BUSY":
                    raise
                link = self._link_for(args, keys_of(args, self._learned) or [])
                if link is None or not await link.wait_for_room(deadline):
                    raise
            else:
                return await future

    def send_script(
        self, script: Script, keys: Iterable[Argument] = (), args: Iterable[Argument] = ()
    ) -> asyncio.Future[Any]:
        self._scripts.setdefault(script.sha, script)
        keys = tuple(keys)
        return self.send(b"EVALSHA", script.sha, len(keys), *keys, *args)

    async def script(self, script: Script, keys: Iterable[Argument] = (), args: Iterable[Argument] = ()) -> Any:
        self._scripts.setdefault(script.sha, script)
        keys = tuple(keys)
        return await self.command(b"EVALSHA", script.sha, len(keys), *keys, *args)

    def _link_for(self, args: Sequence[Argument], keys: Sequence[Argument]) -> ServerLink | None:
        """None while nobody serves the slot."""
        if not keys:
            return self._topology.any()
        slots = {slot_of(as_bytes(key)) for key in keys}
        if len(slots) > 1:
            named = sorted(slots)
            raise StoreError(
                "STORE_CROSS_SLOT",
                f"the {len(keys)} keys of {upper(args[0])} are in {len(named)} slots "
                f"({', '.join(map(str, named[:10]))}{', …' if len(named) > 10 else ''}); "
                "a cluster takes one slot a command: give keys that belong together the same {tag}",
                slots=named[:100],
            )
        return self._owners[slots.pop()]

    def _learn(self, args: Sequence[Argument], pending: Pending) -> None:
        if len(self._learning) >= self._limits.pending_commands_max:
            raise StoreError("STORE_BUSY", f"{len(self._learning)} commands wait until it is known where they go")
        task = self._loop.create_task(self._learn_and_send(args, pending))
        self._learning.add(task)
        task.add_done_callback(self._learning.discard)

    async def _learn_and_send(self, args: Sequence[Argument], pending: Pending) -> None:
        """A command that is in no table: the server knows where its keys are."""
        future, data = pending
        try:
            (info,) = await self._topology.any().command(b"COMMAND", b"INFO", upper(args[0]))
            where = positions(info)
            if where is None:
                keys = await self._ask_for_keys(args)
            else:
                self._learned[upper(args[0])] = where
                keys = pick(args, where)
            link = self._link_for(args, keys)
            if link is None:
                self._wait(pending)
            else:
                link.again(data, future)
        except StoreError as error:
            if not future.done():
                future.set_exception(error)
        except asyncio.CancelledError:
            if not future.done():
                future.set_exception(StoreError("STORE_CLOSED", "the store is closed"))
            raise

    async def _ask_for_keys(self, args: Sequence[Argument]) -> list[Argument]:
        try:
            return list(await self._topology.any().command(b"COMMAND", b"GETKEYS", *args))
        except StoreReplyError:
            return []  # it has none, or is wrong: any server may say so

    # --- slots that move ----------------------------------------------------------------------------------------

    def _redirect(self, link: ServerLink, error: StoreReplyError, pending: Pending) -> bool:
        """The server refused without running it. True if the command is on another way now."""
        if error.code not in ("STORE_REDIRECTED", "STORE_CLUSTER_DOWN"):
            return False
        future, data = pending
        if error.details["reply"] not in ("MOVED", "ASK"):
            return self._wait(pending)
        detour = self._detour(future)
        detour.redirections += 1
        if detour.redirections > self._limits.redirects_max:
            return False
        assert isinstance(link.address, tuple)
        told = read_redirection(error.text, link.address[0])
        if told.address is None:
            return self._wait(pending)
        if error.details["reply"] == "MOVED":
            self._topology.moved(told.slot, told.address).again(data, future)
        else:
            self._topology.link_to(told.address).again_after(_ASKING, self._with_source(data), future)
        return True

    def _with_source(self, data: bytes) -> bytes:
        """What follows ASKING has one attempt: a script goes with its source, in case it is not known there."""
        args = unpack(data)
        script = self._scripts.get(args[1]) if args[0].upper() == b"EVALSHA" else None
        return data if script is None else pack((b"EVAL", script.source, *args[2:]))

    def _detour(self, future: asyncio.Future[Any]) -> Detour:
        detour = self._detours.get(future)
        if detour is None:
            detour = self._detours[future] = Detour(self._loop.time() + self._limits.down_wait_s)
            future.add_done_callback(self._arrived)
        return detour

    def _arrived(self, future: asyncio.Future[Any]) -> None:
        self._detours.pop(future, None)
        timer = self._waiting.pop(future, None)
        if timer is not None:
            timer.cancel()

    def _wait(self, pending: Pending) -> bool:
        """Nobody serves the slot, or it is between two servers: look again in a moment. False when it took too long."""
        future, _ = pending
        detour = self._detour(future)
        if self._closed or self._loop.time() >= detour.deadline:
            return False
        pause = min(_PAUSE_MAX_S, self._limits.redirect_pause_s * 2**detour.waits)
        detour.waits += 1
        self._topology.refresh_soon()
        self._waiting[future] = self._loop.call_later(pause, self._route_again, pending)
        return True

    def _route_again(self, pending: Pending) -> None:
        """A command that was accepted once, to whoever serves its slot now."""
        future, data = pending
        self._waiting.pop(future, None)
        if future.done():
            return
        args = unpack(data)
        try:
            keys = keys_of(args, self._learned)
            if keys is None:
                self._learn(args, pending)
                return
            link = self._link_for(args, keys)
        except StoreError as error:
            future.set_exception(error)
            return
        if link is not None:
            link.again(data, future)
        elif not self._wait(pending):
            future.set_exception(
                StoreError("STORE_CLUSTER_DOWN", f"no server had the slot for {self._limits.down_wait_s:g} s")
            )

"""A link to one server that outlives its connections: it dials again, and holds back commands until it is up.

What a caller may rely on when a connection breaks: a command that had left fails with STORE_CONNECTION_LOST and
`state_changed=None`, for it may have run; a command that had not left, or is given while the link is down, waits for
the next connection up to `down_wait_s`, then fails with STORE_UNAVAILABLE and `state_changed=False`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from mpreg.errors import StoreError
from mpreg.store.commands import SUSPECT_ON_SHARED, refuse_on_shared
from mpreg.store.dial import Dial, Server, dial
from mpreg.store.link import Argument, Link, Pending, pack, silence, unpack
from mpreg.store.replies import StoreReplyError
from mpreg.store.script import Script
from mpreg.store.url import Address, format_address

Redirect = Callable[["ServerLink", StoreReplyError, Pending], bool]
ScriptTable = dict[bytes, Script]


class Held(msgspec.Struct, frozen=True):
    deadline: float
    future: asyncio.Future[Any]
    data: bytes


class ServerLink:
    """`where` names the server at each attempt (a sentinel may name another one each time)."""

    def __init__(
        self,
        where: Callable[[], Awaitable[Address]],
        how: Dial,
        *,
        scripts: ScriptTable | None = None,
        shared: bool = True,
        redirect: Redirect | None = None,
        on_push: Callable[[list[Any]], None] | None = None,
        on_up: Callable[[], None] | None = None,
        on_down: Callable[[], None] | None = None,
    ) -> None:
        self._where = where
        self._how = how
        self._limits = how.limits
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future
        self._scripts: ScriptTable = scripts if scripts is not None else {}
        self._suspect = SUSPECT_ON_SHARED if shared else frozenset()
        self._redirect = redirect
        self._push = on_push
        self._up = on_up
        self._down = on_down
        self._link: Link | None = None
        self._held: deque[Held] = deque()
        self._held_timer: asyncio.TimerHandle | None = None
        self._room: deque[asyncio.Future[None]] = deque()
        self._dialling: asyncio.Task[None] | None = None
        self._links: set[asyncio.Future[None]] = set()
        self._closed = False
        self._last_error: StoreError | None = None
        self.address: Address | None = None
        self.server: Server | None = None
        self.connections = 0
        """How many connections there have been; a cursor of SCAN is good only within one."""

    def __repr__(self) -> str:
        where = format_address(self.address) if self.address is not None else "?"
        return f"ServerLink({where}, {'up' if self._link else 'down'})"

    @property
    def is_up(self) -> bool:
        return self._link is not None

    @property
    def waiting(self) -> int:
        """Commands without a reply, sent or held back."""
        return len(self._held) + (self._link.waiting if self._link is not None else 0)

    # --- commands -----------------------------------------------------------------------------------------------

    def send(self, *args: Argument) -> asyncio.Future[Any]:
        """The hot path: no coroutine; everything sent in one turn of the loop leaves in one write. Raises at once
        what is wrong with the call (STORE_INVALID_COMMAND, STORE_BUSY, STORE_CLOSED); what the server or the network
        says comes through the future."""
        data = pack(args)
        if args[0] in self._suspect:
            refuse_on_shared(args)
        if self._link is not None:
            return self._link.put(data, self._create_future())
        return self.put(data, self._create_future())

    async def command(self, *args: Argument) -> Any:
        """As `send`, but where that refuses with STORE_BUSY this waits for room, up to `down_wait_s`."""
        deadline = self._loop.time() + self._limits.down_wait_s
        while True:
            try:
                future = self.send(*args)
            except StoreError as error:
                if error.code != "STORE_BUSY" or not await self.wait_for_room(deadline):
                    raise
            else:
                return await future

    def send_script(
        self, script: Script, keys: Iterable[Argument] = (), args: Iterable[Argument] = ()
    ) -> asyncio.Future[Any]:
        """EVALSHA; if the server does not know the script (any more), it is loaded and called again."""
        self._scripts.setdefault(script.sha, script)
        keys = tuple(keys)
        data = pack((b"EVALSHA", script.sha, len(keys), *keys, *args))
        if self._link is not None:
            return self._link.put(data, self._create_future())
        return self.put(data, self._create_future())

    async def script(self, script: Script, keys: Iterable[Argument] = (), args: Iterable[Argument] = ()) -> Any:
        """As `send_script`, but waits for room as `command` does."""
        self._scripts.setdefault(script.sha, script)
        keys = tuple(keys)
        return await self.command(b"EVALSHA", script.sha, len(keys), *keys, *args)

    def put(self, data: bytes, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """A packed command with the future of its caller: sent, or held back while the link is down."""
        if self._link is not None:
            return self._link.put(data, future)
        if self._closed:
            raise StoreError("STORE_CLOSED", "the store is closed")
        if len(self._held) >= self._limits.pending_commands_max:
            raise StoreError("STORE_BUSY", f"{len(self._held)} commands wait for the store to come back")
        self._hold(future, data)
        return future

    def again_after(self, prefix: bytes, data: bytes, future: asyncio.Future[Any]) -> None:
        """Two commands that must arrive one right after the other (ASKING); the reply of the first is dropped."""
        first = self._create_future()
        silence(first)
        self.again(prefix, first)
        self.again(data, future)

    def again(self, data: bytes, future: asyncio.Future[Any]) -> None:
        """As `put`, for a command that was accepted once and comes back to be sent here: nothing is raised."""
        if self._link is not None:
            self._link.again(data, future)
        elif not self._closed:
            self._hold(future, data)
        elif not future.done():
            future.set_exception(StoreError("STORE_CLOSED", "the store is closed"))

    async def wait_for_room(self, deadline: float) -> bool:
        room = self._create_future()
        self._room.append(room)
        try:
            async with asyncio.timeout_at(deadline):
                await room
        except TimeoutError:
            return False
        return True

    # --- being held back ----------------------------------------------------------------------------------------

    def _hold(self, future: asyncio.Future[Any], data: bytes) -> None:
        self._held.append(Held(self._loop.time() + self._limits.down_wait_s, future, data))
        if self._held_timer is None:
            self._held_timer = self._loop.call_at(self._held[0].deadline, self._give_up_waiting)

    def _give_up_waiting(self) -> None:
        self._held_timer = None
        now = self._loop.time()
        while self._held and self._held[0].deadline <= now:
            held = self._held.popleft()
            if not held.future.done():
                held.future.set_exception(self._unavailable())
        if self._held:
            self._held_timer = self._loop.call_at(self._held[0].deadline, self._give_up_waiting)

    def _unavailable(self) -> StoreError:
        cause = self._last_error
        why = cause.message if cause is not None else "no connection yet"
        return StoreError(
            "STORE_UNAVAILABLE",
            f"the store was down for {self._limits.down_wait_s:g} s: {why}",
            cause=cause.code if cause is not None else None,
        )

    def take_held(self) -> list[Pending]:
        """All commands that wait for a connection, to be sent elsewhere."""
        held = [(x.future, x.data) for x in self._held if not x.future.done()]
        self._held.clear()
        return held

    # --- connections --------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """The first connection: what is wrong with it is raised. A server that is loading is waited for."""
        deadline = self._loop.time() + self._limits.connect_timeout_s
        while True:
            try:
                await self._dial_once()
                return
            except StoreError as error:
                if error.code != "STORE_LOADING" or self._loop.time() >= deadline:
                    raise
            await asyncio.sleep(self._limits.backoff_min_s)

    def start(self) -> None:
        """Dial in the background, again and again; commands wait as while a link is down."""
        if self._dialling is None and self._link is None and not self._closed:
            self._dialling = self._loop.create_task(self._keep_dialling())

    async def _dial_once(self) -> None:
        self.address = await self._where()
        link, self.server = await dial(self.address, self._how, self)
        if self._closed:
            link.lose(StoreError("STORE_CLOSED", "the store is closed"))
            await asyncio.shield(link.closed)
            return
        self._link = link
        self._links.add(link.closed)
        link.closed.add_done_callback(self._links.discard)
        self.connections += 1
        self._last_error = None
        if self._up is not None:
            self._up()
        for future, data in self.take_held():
            link.again(data, future)

    async def _keep_dialling(self) -> None:
        pause = self._limits.backoff_min_s
        while not self._closed:
            try:
                await self._dial_once()
                break
            except StoreError as error:
                self._last_error = error
            await asyncio.sleep(random.uniform(0, pause))
            pause = min(pause * 2, self._limits.backoff_max_s)
        self._dialling = None
        if self._link is None:
            self.start()  # lost again while it was still being set up

    def reconnect(self, error: StoreError) -> None:
        """Give up the present connection and dial anew."""
        if self._link is not None:
            self._link.lose(error)

    def end(self) -> None:
        """Whatever waits fails with STORE_CLOSED now. `close` has to follow."""
        self._closed = True
        closed = StoreError("STORE_CLOSED", "the store is closed")
        if self._link is not None:
            self._link.lose(closed)
        for future, _ in self.take_held():
            future.set_exception(StoreError(closed.code, closed.message))
        if self._held_timer is not None:
            self._held_timer.cancel()
        self.on_room()

    async def close(self) -> None:
        """May be called again."""
        self.end()
        dialling, self._dialling = self._dialling, None
        if dialling is not None:
            dialling.cancel()
            await asyncio.wait([dialling])
        if self._links:
            await asyncio.wait(self._links)

    # --- LinkOwner ----------------------------------------------------------------------------------------------

    def on_room(self) -> None:
        while self._room:
            room = self._room.popleft()
            if not room.done():
                room.set_result(None)

    def on_push(self, link: Link, push: list[Any]) -> None:
        if self._push is not None:
            self._push(push)

    def on_lost(self, link: Link, error: StoreError, unsent: list[Pending]) -> None:
        if link is not self._link:  # lost in its handshake; the dialler waits for what it has asked
            for future, _ in unsent:
                if not future.done():
                    future.set_exception(StoreError(error.code, error.message))
            return
        self._link = None
        self._last_error = error
        self.on_room()
        for future, data in unsent:
            if future.done():
                continue
            if self._closed:
                future.set_exception(StoreError(error.code, error.message))
            else:
                self._hold(future, data)
        if self._down is not None:
            self._down()
        self.start()

    def on_error_reply(self, link: Link, error: StoreReplyError, pending: Pending) -> bool:
        if error.details["reply"] == "NOSCRIPT":
            return self._load_script(link, pending)
        if error.code == "STORE_READ_ONLY" and self._how.primary_only and error.details["reply"] == "READONLY":
            # The primary has become a replica: ask the sentinels again.
            self._loop.call_soon(self.reconnect, StoreError("STORE_CONNECTION_LOST", "the server became a replica"))
            return False
        return self._redirect is not None and self._redirect(self, error, pending)

    def _load_script(self, link: Link, pending: Pending) -> bool:
        """A script that is unknown has not run. EVAL carries its source, and leaves it known to the server."""
        future, data = pending
        args = unpack(data)
        script = self._scripts.get(args[1]) if args[0].upper() == b"EVALSHA" else None
        if script is None:
            return False
        link.again(pack((b"EVAL", script.source, *args[2:])), future)
        return True

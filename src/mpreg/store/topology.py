"""Who serves which slot of a cluster at the moment, and a link to each of them; kept true in the background.

It is asked again when a server redirects a command, when a link breaks, and every `topology_s`, because a client that
only listens is told by nobody that a primary has become a replica. Commands that wait for a server which has lost its
slots are handed back, and go to the new owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mpreg.errors import StoreError
from mpreg.store.dedicated import Dedicated
from mpreg.store.dial import Dial, Server
from mpreg.store.link import Pending
from mpreg.store.replies import StoreReplyError
from mpreg.store.server_link import Redirect, ScriptTable, ServerLink
from mpreg.store.servers import Holding, fixed
from mpreg.store.slots import SLOTS, Slots, read_own_line, read_slots
from mpreg.store.url import Address, format_address

HostPort = tuple[str, int]

_USELESS = ("STORE_AUTH", "STORE_NOT_PERMITTED", "STORE_UNSUPPORTED_VERSION")


class Topology:
    def __init__(
        self,
        seeds: Iterable[Address],
        how: Dial,
        *,
        scripts: ScriptTable,
        redirect: Redirect,
        hand_back: Callable[[Pending], None],
    ) -> None:
        self.owners: list[ServerLink | None] = [None] * SLOTS
        self._seeds = [seed for seed in seeds if not isinstance(seed, str)]
        self._how = how
        self._limits = how.limits
        self._scripts = scripts
        self._redirect = redirect
        self._hand_back = hand_back
        self._links: dict[HostPort, ServerLink] = {}
        self._retired: set[ServerLink] = set()
        self._primaries: dict[HostPort, int] = {}
        self._watchers: list[Callable[[], None]] = []
        self._asking = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._ended: set[asyncio.Task[None]] = set()
        self.server: Server | None = None

    async def open(self) -> None:
        """All primaries are connected, or dialled in the background if only some can be reached."""
        slots = await self._ask()
        self._apply(slots, start=False)
        links = list(self._links.values())
        results = await asyncio.gather(*[link.connect() for link in links], return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        if errors and (len(errors) == len(results) or not all(isinstance(error, StoreError) for error in errors)):
            raise errors[0]
        self.server = next(link.server for link in links if link.server is not None)
        for link in links:
            link.start()
        self._keeper = asyncio.create_task(self._keep(), name="cluster topology")

    def end(self) -> None:
        """Whatever waits fails now. `close` has to follow."""
        for link in [*self._links.values(), *self._retired]:
            link.end()

    async def close(self) -> None:
        self.end()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        for link in [*self._links.values(), *self._retired]:
            await link.close()
        if self._ended:
            await asyncio.wait(self._ended)

    # --- what is known ------------------------------------------------------------------------------------------

    def primaries(self) -> Mapping[HostPort, tuple[ServerLink, int]]:
        """Each with one of its slots."""
        return {address: (self._links[address], slot) for address, slot in self._primaries.items()}

    def any(self) -> ServerLink:
        """Always the same one while it is up, so that what is published by one caller stays in order."""
        links = [self._links[address] for address in self._primaries]
        if not links:
            raise StoreError("STORE_CLUSTER_DOWN", "no server of the cluster has any slot")
        return next((link for link in links if link.is_up), links[0])

    def link_to(self, address: HostPort) -> ServerLink:
        link = self._links.get(address)
        if link is None:
            link = self._make(address)
            link.start()
        return link

    def moved(self, slot: int, address: HostPort) -> ServerLink:
        """What a server says about one slot is newer than what is known."""
        link = self.owners[slot] = self.link_to(address)
        if address not in self._primaries:
            self._primaries[address] = slot
            self._tell()
        self.refresh_soon()
        return link

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)

    async def layout(self) -> Mapping[ServerLink, Holding]:
        await self.refresh()
        found: dict[ServerLink, Holding] = {}
        for link, _ in self.primaries().values():
            lines = await link.command(b"CLUSTER", b"NODES")
            slots, importing = read_own_line(lines.decode())
            if slots or importing:
                found[link] = Holding(slots, importing)
        return found

    # --- asking -------------------------------------------------------------------------------------------------

    def refresh_soon(self) -> None:
        self._wanted.set()

    async def refresh(self) -> None:
        async with self._asking:
            self._apply(await self._ask())

    async def _keep(self) -> None:
        pause = self._limits.backoff_min_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.topology_s):
                    await self._wanted.wait()
            self._wanted.clear()
            with contextlib.suppress(StoreError):
                await self.refresh()
            self._let_go()
            if all(self._links[address].is_up for address in self._primaries) and None not in self.owners:
                pause = self._limits.backoff_min_s
            else:
                self._wanted.set()
            # Many redirections of one moment are one question; and a cluster in trouble is asked less and less often.
            await asyncio.sleep(random.uniform(pause / 2, pause))
            if self._wanted.is_set():
                pause = min(pause * 2, self._limits.backoff_max_s)

    async def _ask(self) -> Slots:
        """Any node knows. One that is up is asked first; a node cut off from the others may be behind, so not always
        the same one."""
        problem: StoreError | None = None
        up = [(address, link) for address, link in self._links.items() if link.is_up]
        for address, link in random.sample(up, len(up)):
            try:
                async with asyncio.timeout(self._limits.connect_timeout_s):
                    return _read(await link.command(b"CLUSTER", b"SLOTS"), address)
            except TimeoutError:
                problem = StoreError("STORE_UNAVAILABLE", f"{format_address(address)} does not answer")
            except StoreError as error:
                problem = error
        for address in dict.fromkeys([*self._links, *self._seeds]):
            try:
                async with (
                    Dedicated(fixed(address), self._how) as direct,
                    asyncio.timeout(self._limits.connect_timeout_s),
                ):
                    return _read(await direct.command(b"CLUSTER", b"SLOTS"), address)
            except TimeoutError:
                problem = problem or StoreError("STORE_UNAVAILABLE", f"{format_address(address)} does not answer")
            except StoreReplyError as error:
                if "cluster support disabled" in error.text:
                    why = f"store URL, scheme: {format_address(address)} is no cluster; for one server use valkey://"
                    raise StoreError("STORE_INVALID_URL", why, part="scheme") from None
                problem = error
            except StoreError as error:
                if error.code in _USELESS:
                    raise
                problem = problem or error
        assert problem is not None, "a cluster URL has at least one address"
        raise problem

    def _apply(self, slots: Slots, *, start: bool = True) -> None:
        owners: list[ServerLink | None] = [None] * SLOTS
        for address, parts in slots.primaries.items():
            link = self._links.get(address) or self._make(address)
            if start:
                link.start()
            for part in parts:
                for slot in part:
                    owners[slot] = link
        self.owners[:] = owners
        before = self._primaries.keys()
        self._primaries = {address: parts[0].start for address, parts in slots.primaries.items()}
        for address in [address for address in self._links if address not in self._primaries]:
            link = self._links.pop(address)
            self._retired.add(link)
            for pending in link.take_held():
                self._hand_back(pending)
        if before != self._primaries.keys():
            self._tell()

    def _make(self, address: HostPort) -> ServerLink:
        link = ServerLink(
            fixed(address), self._how, scripts=self._scripts, redirect=self._redirect, on_down=self.refresh_soon
        )
        link.address = address
        self._links[address] = link
        return link

    def _let_go(self) -> None:
        """Ends links to former primaries once they owe nothing."""
        for link in [link for link in self._retired if not link.waiting or not link.is_up]:
            self._retired.discard(link)
            for pending in link.take_held():
                self._hand_back(pending)
            task = asyncio.get_running_loop().create_task(link.close())
            self._ended.add(task)
            task.add_done_callback(self._ended.discard)

    def _tell(self) -> None:
        for changed in self._watchers:
            changed()


def _read(reply: Any, address: HostPort) -> Slots:
    slots = read_slots(reply, address[0])
    if not slots.primaries:
        raise StoreError("STORE_CLUSTER_DOWN", f"{format_address(address)} knows of no server with slots")
    return slots

"""The primary behind sentinels: asked for each time a connection is dialled, and watched in between.

What a sentinel says may be out of date, so the server itself is asked too (`Dial.primary_only`), and a server that
answers READONLY is left. A primary that has been replaced may go on for seconds, taking writes that nobody will ever
see: so a sentinel is listened to, and asked now and then, and the links move as soon as it names another one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Mapping

from msgspec.structs import replace

from mpreg.errors import StoreError
from mpreg.store.dedicated import Dedicated
from mpreg.store.dial import Dial
from mpreg.store.hub import Hub, names
from mpreg.store.replies import StoreReplyError
from mpreg.store.servers import Place, Single, fixed
from mpreg.store.subscription import Inbox, Message
from mpreg.store.url import Address, StoreUrl, format_address

_SWITCHED = "+switch-master"
_HELD = 10


class Sentinels(Single):
    def __init__(self, url: StoreUrl, how: Dial) -> None:
        asking = replace(how, user=url.sentinel_user, password=url.sentinel_password, database=0, primary_only=False)
        self._service = url.service
        self._order = list(url.addresses)
        self._asking = asking
        self._limits = how.limits
        self._watchers: list[Callable[[], None]] = []
        self._known: Address | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._news = Inbox(_HELD)
        self._hub = Hub(self._a_sentinel, replace(asking, subscribes=True))
        super().__init__(self._find, how, on_up=self._on_up)

    async def open(self) -> None:
        await self.link.connect()
        self._hub.adopt(self._news, names([_SWITCHED]))
        self._hub.start()
        self._watch_task = asyncio.create_task(self._listen(), name="sentinels")

    async def close(self) -> None:
        self.link.end()
        if self._watch_task is not None:
            self._watch_task.cancel()
            await asyncio.wait([self._watch_task])
        await self._hub.close()
        await super().close()

    def places(self) -> Mapping[Hashable, Place]:
        return {self.link.address: Place(self._find, self.link, None)}

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)

    def _on_up(self) -> None:
        if self.link.address != self._known:
            self._known = self.link.address
            for changed in self._watchers:
                changed()

    async def _a_sentinel(self) -> Address:
        """The one that answered last; after a failure the next one."""
        self._order.append(self._order.pop(0))
        return self._order[-1]

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.topology_s):
                    item = await self._news.get()
                    # +switch-master carries: name old-ip old-port new-ip new-port
                    if isinstance(item, Message) and item.data.partition(b" ")[0] != self._service.encode():
                        continue
            with contextlib.suppress(StoreError):
                if self.link.is_up and await self._find() != self.link.address:
                    self.link.reconnect(
                        StoreError("STORE_CONNECTION_LOST", "the sentinels name another server as the primary")
                    )

    async def _find(self) -> Address:
        problems: list[str] = []
        unknown = 0
        for sentinel in list(self._order):
            place = format_address(sentinel)
            try:
                async with Dedicated(fixed(sentinel), self._asking) as link:
                    answer = await link.command(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self._service)
            except StoreError as error:
                if isinstance(error, StoreReplyError) and error.code == "STORE_REPLY":
                    why = f"store URL, host: {place} is not a sentinel"
                    raise StoreError("STORE_INVALID_URL", why, part="host") from None
                problems.append(error.message)
                continue
            if answer is None:
                unknown += 1
                problems.append(f"{place} knows no primary of the name {self._service!r}")
                continue
            # Who answered is asked first the next time.
            self._order.remove(sentinel)
            self._order.insert(0, sentinel)
            return answer[0].decode(), int(answer[1])
        if unknown == len(self._order):
            raise StoreError("STORE_INVALID_URL", f"store URL, path: {'; '.join(problems)}", part="path")
        raise StoreError("STORE_UNAVAILABLE", f"no sentinel says who the primary is: {'; '.join(problems)}")

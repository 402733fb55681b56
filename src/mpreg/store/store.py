"""The store that all of MPREG uses: one server, a primary behind sentinels, or a cluster, behind the same few verbs.

    store = await connect("valkey://127.0.0.1/0")
    await store.command("SET", "greeting", "hello")
    value = await store.send("GET", "greeting")        # a future: no coroutine on the hot path
    await store.close()

Keys and values are bytes; a str is sent as UTF-8, an int or float in its shortest decimal form. How calls fail, and
what that says about whether they have run: server_link.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Self

from msgspec.structs import replace

from mpreg.errors import StoreError
from mpreg.store.alarms import Alarms
from mpreg.store.cluster import Cluster
from mpreg.store.dedicated import Dedicated
from mpreg.store.dial import Dial, Server, tls_context
from mpreg.store.hub import Hub, names
from mpreg.store.key_events import PROBE_KEY, EventSource, KeyEvents, Tell
from mpreg.store.limits import StoreLimits
from mpreg.store.lock_held import lease_clock
from mpreg.store.scan import COUNT, scan
from mpreg.store.sentinel import Sentinels
from mpreg.store.server_link import ServerLink
from mpreg.store.servers import Servers, Single, fixed
from mpreg.store.subscription import Inbox, Subscription
from mpreg.store.url import StoreUrl


async def connect(url: str | StoreUrl, *, name: str = "mpreg", limits: StoreLimits | None = None) -> Store:
    """A store that is ready for commands, or the StoreError that says why not."""
    parsed = StoreUrl.parse(url) if isinstance(url, str) else url
    store = Store(parsed, name=name, limits=limits or StoreLimits())
    try:
        await store.open()
    except BaseException:
        await store.close()
        raise
    return store


class Store:
    def __init__(self, url: StoreUrl, *, name: str, limits: StoreLimits) -> None:
        self.url = url
        """Where it is; without any secret when it is printed."""
        self.limits = limits
        self._how = Dial(
            name=name,
            limits=limits,
            user=url.user,
            password=url.password,
            database=url.database,
            ssl=tls_context(url.tls) if url.tls is not None else None,
            server_name=url.tls.server_name if url.tls is not None else None,
            primary_only=url.kind == "sentinel",
        )
        self._servers = self._behind(url)
        self.alarms = Alarms(lease_clock)
        """For those who hold a lock of this store."""
        self._closed = False
        self._hub: Hub | None = None
        self._events = EventSource(self._servers, replace(self._how, subscribes=True), url.database)
        self._servers.watch(self._on_change)
        self.send = self._servers.send
        """The hot path: a future, no coroutine; all that is sent in one turn of the loop leaves in one write. Raises at
        once what is wrong with the call; what the server or the network says comes through the future."""
        self.command = self._servers.command
        """As `send`, but waits for room where that refuses with STORE_BUSY."""
        self.send_script = self._servers.send_script
        """EVALSHA as `send`; a script that the server does not know (any more) is loaded on the way."""
        self.script = self._servers.script
        """As `send_script`, but waits for room."""

    def __repr__(self) -> str:
        return f"Store({str(self.url)!r})"

    def _behind(self, url: StoreUrl) -> Servers:
        match url.kind:
            case "single":
                return Single(fixed(url.addresses[0]), self._how)
            case "sentinel":
                return Sentinels(url, self._how)
            case "cluster":
                return Cluster(url.addresses, self._how)

    async def open(self) -> None:
        await self._servers.open()

    async def close(self) -> None:
        """Whatever still waits fails with STORE_CLOSED. May be called again."""
        self._closed = True
        await self._servers.close()
        await self._events.close()
        if self._hub is not None:
            await self._hub.close(StoreError("STORE_CLOSED", "the store is closed"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def server(self) -> Server:
        """Name and version of the server (of a cluster: of one of them) as of its last connection."""
        assert self._servers.server is not None, "not open"
        return self._servers.server

    def primaries(self) -> list[ServerLink]:
        """A link to each server that holds keys, for commands that concern one server: INFO, CONFIG, DBSIZE."""
        return self._servers.primaries()

    def scan(
        self, match: str | bytes | None = None, *, type: str | None = None, count: int = COUNT
    ) -> AsyncIterator[list[bytes]]:
        """Pages of keys of every primary; a key may come twice. `type` is as TYPE says it."""
        return scan(self._servers, match, type, count)

    def subscribe(self, channels: Iterable[str | bytes] = (), patterns: Iterable[str | bytes] = ()) -> Subscription:
        """`async with` it; then each channel is acknowledged, and iterating gives every Message published from then
        on, and a Gap wherever some may be missing. Any number of subscriptions shares one connection."""
        wanted = names(channels, patterns)
        if not wanted:
            raise StoreError("STORE_INVALID_COMMAND", "a subscription needs at least one channel or pattern")

        async def enter(inbox: Inbox) -> None:
            await self._subscriptions().add(inbox, wanted)

        def leave(inbox: Inbox) -> None:
            if self._hub is not None:
                self._hub.remove(inbox, wanted)

        return Subscription(Inbox(self.limits.subscription_messages_max), enter, leave)

    def _subscriptions(self) -> Hub:
        if self._closed:
            raise StoreError("STORE_CLOSED", "the store is closed")
        if self._hub is None:
            self._hub = Hub(self._servers.where(None), replace(self._how, subscribes=True))
            self._hub.start()
        return self._hub

    def _on_change(self) -> None:
        """A primary that has been replaced hears nothing any more of what is published."""
        hub = self._hub
        if hub is not None and hub.link.address not in self._servers.places():
            hub.link.reconnect(StoreError("STORE_CONNECTION_LOST", "another server has taken over"))

    def keyspace_events(
        self,
        *patterns: str | bytes,
        keys: Iterable[str | bytes] = (),
        needs: str = "$",
        configure: bool = True,
        required: bool = True,
        probe_key: str | bytes = PROBE_KEY,
        tell: Tell | None = None,
    ) -> KeyEvents:
        """`async with` it; then every primary has acknowledged, and iterating gives a KeyEvent for what happens to the
        keys that match, and a Gap wherever some may be missing.

        `needs` are the classes of notify-keyspace-events (`$` strings, `g` DEL and EXPIRE, `x` expired, …). Missing
        ones are added if `configure`. If events can't be had: STORE_NO_EVENTS if `required`, else a warning, and
        `silent` says why. Where the setting can't be read, keys that begin with `probe_key` prove it.

        With `tell` nobody iterates: it is called with each item at once, in the event loop, and with a StoreError when
        there will be no more. It must be quick; what it raises is logged."""
        interest = self._events.interest(
            patterns, tuple(keys), needs=needs, configure=configure, required=required, probe_key=probe_key
        )
        return KeyEvents(self._events, interest, self.limits.subscription_messages_max, tell)

    def dedicated(self, key: str | bytes | None = None) -> Dedicated:
        """`async with` it: a connection of the caller's own, for commands that block and for transactions. In a
        cluster it goes to the server of `key`, or to any."""
        return Dedicated(self._servers.where(key.encode() if isinstance(key, str) else key), self._how)

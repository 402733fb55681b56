"""One started node: the services, the listeners and the store, put together in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import secrets
import time
from contextlib import AsyncExitStack
from typing import Any

from mpreg import __version__
from mpreg.errors import ConfigError
from mpreg.node.dispatch import Dispatch
from mpreg.node.settings import Settings
from mpreg.pubsub import PubSubService
from mpreg.rpc import Deadlines, LocalPlacement, Registry, RpcService, Threads
from mpreg.store import Embedded, Store, connect
from mpreg.transport import Accept, Link, Listener, TlsFiles, listen, memory_pair
from mpreg.wire.rpc import Rpc, RpcCancel

log = logging.getLogger(__name__)

SCHEMES = ("ws", "wss", "tcp", "tcps")
CLOSE_S = 6.0  # a little longer than a link waits for its peer to take what is still to be written


class Running:
    """`start` builds it up, `stop` takes it down in the opposite order; a `start` that fails leaves nothing."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        self.started = time.time()
        self.store: Store | None = None
        self.dispatch = Dispatch(settings.connections_max)
        self.deadlines = Deadlines(loop)
        self.threads = Threads(loop, settings.rpc.threads_max, settings.rpc.threads_waiting_max)
        placement = LocalPlacement(registry, self.threads, settings.debug)
        self.rpc = RpcService(placement, self.deadlines, settings.rpc)
        self.dispatch.add({Rpc: self.rpc.request, RpcCancel: self.rpc.cancel}, self.rpc.closed)
        self.pubsub = PubSubService(secrets.token_hex(5), settings.pubsub)
        self.dispatch.add(self.pubsub.handlers, self.pubsub.closed)
        self._listeners: dict[str, Listener] = {}
        self._store_url: str | None = None
        self._stack = AsyncExitStack()

    @property
    def listeners(self) -> dict[str, str]:
        """Where the node can be reached, by scheme."""
        return {scheme: listener.url for scheme, listener in self._listeners.items()}

    @property
    def store_url(self) -> str | None:
        """For other programs: what `redis-cli -u` or `-s` takes."""
        return self._store_url

    async def start(self) -> None:
        async with AsyncExitStack() as undo:
            undo.callback(self.deadlines.close)
            undo.callback(self.threads.close)
            undo.callback(self.pubsub.close)
            await self._open_store(undo)
            for scheme in SCHEMES:
                await self._listen(scheme, undo)
            self._stack = undo.pop_all()
        if self._listeners and not is_loopback(self.settings.host):
            log.warning(
                "Whoever reaches %s may call every function of this node: it does not ask who they are",
                ", ".join(self.listeners.values()),
            )

    async def stop(self, grace_s: float) -> None:
        """Stop accepting, finish what runs, take leave, close."""
        for listener in self._listeners.values():
            listener.close()
        await self.rpc.drain(grace_s)
        links = [session.link for session in self.dispatch.sessions]
        self.dispatch.say_goodbye(self.settings.name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*(link.wait_closed() for link in links))
        await self._stack.aclose()

    def attach(self, accept: Accept) -> Link:
        """A link to this node within the process."""
        link, _ = memory_pair(accept, self.dispatch.accept, limits=self.settings.limits)
        return link

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.settings.name,
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.time() - self.started, 3),
            "listeners": self.listeners,
        }

    def statistics(self) -> dict[str, Any]:
        return {
            "rpc": {**self.rpc.statistics.report(), "active_connections": len(self.dispatch.sessions)},
            "topic_exchange": self.pubsub.report(),
            "running_requests": len(self.rpc),
            "busy_threads": self.threads.busy,
            "refused_connections": self.dispatch.refused,
        }

    async def _open_store(self, undo: AsyncExitStack) -> None:
        url = self.settings.store
        if url == "off":
            return
        if url == "embedded:":
            embedded = Embedded(self.settings.data_dir, self.settings.durability)
            await undo.enter_async_context(embedded)
            url = embedded.url
        self.store = await connect(url)
        undo.push_async_callback(self.store.close)
        self._store_url = url

    async def _listen(self, scheme: str, undo: AsyncExitStack) -> None:
        port = getattr(self.settings, scheme)
        if port == "off":
            return
        tls = self._tls(scheme) if scheme in ("wss", "tcps") else None
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        listener = await listen(f"{scheme}://{host}:{port}", self.dispatch.accept, limits=self.settings.limits, tls=tls)
        undo.callback(listener.close)
        self._listeners[scheme] = listener

    def _tls(self, scheme: str) -> TlsFiles:
        settings = self.settings
        for setting in ("tls_cert", "tls_key"):
            if getattr(settings, setting) is None:
                raise ConfigError("CONFIG_INVALID", f"{scheme} needs {setting}, a PEM file", setting=setting)
        if settings.tls_require_client_cert and settings.tls_ca is None:
            raise ConfigError("CONFIG_INVALID", "tls_require_client_cert needs tls_ca, a PEM file", setting="tls_ca")
        return TlsFiles(
            cert=settings.tls_cert,
            key=settings.tls_key,
            ca=settings.tls_ca,
            require_client_cert=settings.tls_require_client_cert,
        )


def is_loopback(host: str) -> bool:
    """Can only this machine reach it? A name that is not `localhost` may stand for any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

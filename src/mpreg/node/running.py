"""One started node: the services, the listeners and the store, put together in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from mpreg import __version__
from mpreg.errors import ConfigError
from mpreg.node.addresses import is_loopback
from mpreg.node.clustering import shared_store
from mpreg.node.dispatch import Dispatch
from mpreg.node.service import Service
from mpreg.node.services import Services
from mpreg.node.settings import Settings, listed
from mpreg.pubsub import Handler
from mpreg.rpc import Registry
from mpreg.store import Embedded, Store, connect
from mpreg.transport import Accept, Link, Listener, TlsFiles, listen, memory_pair

log = logging.getLogger(__name__)

SCHEMES = ("ws", "wss", "tcp", "tcps")
CLOSE_S = 6.0  # a little longer than a link waits for its peer to take what is still to be written


class Running:
    """`start` builds it up, `stop` takes it down in the opposite order; a `start` that fails leaves nothing."""

    def __init__(self, settings: Settings, registry: Registry, handlers: Sequence[Handler] = ()) -> None:
        self.settings = settings
        self.started = time.time()
        self.store: Store | None = None
        self.dispatch = Dispatch(settings.connections_max)
        self._registry = registry
        self._handlers = handlers
        self._services: Services | None = None
        self._started: list[Service] = []
        self._listeners: dict[str, Listener] = {}
        self._store_url: str | None = None
        self._embedded: Embedded | None = None
        self._stack = AsyncExitStack()

    @property
    def services(self) -> Services:
        assert self._services is not None, "made by `start`"
        return self._services

    @property
    def listeners(self) -> dict[str, str]:
        """Where the node can be reached, by scheme."""
        return {scheme: listener.url for scheme, listener in self._listeners.items()}

    @property
    def store_url(self) -> str | None:
        """For other programs, with its password if it has one. `redis-cli -s` takes the path of a `unix://` URL."""
        return self._store_url

    async def start(self) -> None:
        async with AsyncExitStack() as undo:
            await self._open_store(undo)
            self._services = Services(self.settings, self._registry, self.store, self.dispatch, self._handlers)
            await self._start_services(self._services.all(), undo)
            for scheme in SCHEMES:
                await self._listen(scheme, undo)
            for service in self._started:
                if service.listening is not None:
                    await service.listening(self.listeners)
            self._stack = undo.pop_all()
        if self._listeners and not is_loopback(self.settings.host):
            log.warning(
                "Whoever reaches %s may call every function of this node: it does not ask who they are",
                ", ".join(self.listeners.values()),
            )

    async def failed(self) -> None:
        clustering = self.services.clustering
        waits = [] if clustering is None else [asyncio.shield(clustering.failed)]
        if self._embedded is not None:
            waits.append(asyncio.ensure_future(self._embedded.wait()))
        if not waits:
            await asyncio.get_running_loop().create_future()
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                await ended
        finally:
            for wait in waits:
                wait.cancel()

    def stop_accepting(self) -> None:
        for listener in self._listeners.values():
            listener.close()

    async def stop(self, grace_s: float) -> None:
        """Stop accepting, finish what runs, take leave, close."""
        self.stop_accepting()
        async with asyncio.TaskGroup() as draining:
            for service in self._started:
                if service.drain is not None:
                    draining.create_task(_drain(service, grace_s))
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
        return {service.name: service.report() for service in self._started if service.report is not None}

    async def _start_services(self, services: list[Service], undo: AsyncExitStack) -> None:
        for service in services:
            if service.close is not None:
                undo.push_async_callback(_close, service)
        for service in services:
            if service.start is not None:
                await service.start()
            self.dispatch.add(service.handlers, service.closed)
            self._started.append(service)

    async def _open_store(self, undo: AsyncExitStack) -> None:
        url = self.settings.store
        if url == "off":
            return
        if url == "embedded:":
            self._embedded = Embedded(self.settings.data_dir, self.settings.durability)
            await undo.enter_async_context(self._embedded)
            url = self._embedded.url
        elif url == "shared:":
            url = await shared_store(self.settings)
        self.store = await connect(url)
        undo.push_async_callback(self.store.close)
        self._store_url = url

    async def _listen(self, scheme: str, undo: AsyncExitStack) -> None:
        port = getattr(self.settings, scheme)
        if port == "off":
            return
        tls = self._tls(scheme) if scheme in ("wss", "tcps") else None
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        url, share = f"{scheme}://{host}:{port}", self.settings.reuse_port
        listener = await listen(
            url,
            self.dispatch.accept,
            limits=self.settings.limits,
            tls=tls,
            share=share,
            origins=listed(self.settings.origins),
        )
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


async def _drain(service: Service, grace_s: float) -> None:
    assert service.drain is not None
    try:
        await service.drain(grace_s)
    except Exception:
        log.exception("%s could not finish in good order", service.name)


async def _close(service: Service) -> None:
    assert service.close is not None
    try:
        closing = service.close()
        if closing is not None:
            await closing
    except Exception:
        log.exception("%s could not be closed in good order", service.name)

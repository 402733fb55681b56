"""The services of a node: here each is made, and handed what it needs of the others."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpreg.cache import Cache, CacheService, ChangesChannel, Update, to_wire
from mpreg.deadlines import Deadlines
from mpreg.node.clustering import Clustering, not_clustered, refuse_hello
from mpreg.node.dispatch import Dispatch
from mpreg.node.service import Service
from mpreg.node.settings import Settings
from mpreg.pubsub import Handler, PubSubService
from mpreg.queues import QueueService
from mpreg.rpc import LocalPlacement, Registry, RpcService, Threads
from mpreg.store import Store
from mpreg.wire.lifecycle import Hello
from mpreg.wire.rpc import Rpc, RpcCancel


class Services:
    """Of one run of a node, made once its store is open (`store` is `None` if the settings turn it off)."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        store: Store | None,
        dispatch: Dispatch,
        handlers: Sequence[Handler] = (),
    ) -> None:
        loop = asyncio.get_running_loop()
        self.dispatch = dispatch
        self.deadlines = Deadlines(loop)
        self.threads = Threads(loop, settings.rpc.threads_max, settings.rpc.threads_waiting_max)
        self.shared_store = str(store.url) if store is not None and settings.share_store else None
        self.clustering = Clustering(settings, registry, self.threads, dispatch) if settings.cluster else None
        placement = (
            LocalPlacement(registry, self.threads, settings.debug)
            if self.clustering is None
            else self.clustering.placement
        )
        self.rpc = RpcService(placement, self.deadlines, settings.rpc)
        if self.clustering is not None:
            self.clustering.use(self.rpc)
        run = secrets.token_hex(5) if self.clustering is None else self.clustering.cluster.run_id
        self.pubsub = PubSubService(run, settings.pubsub)
        if self.clustering is not None:
            self.clustering.use_topics(self.pubsub)
        self.queues = QueueService(secrets.token_hex(5), store, settings.queues)
        self._handlers = handlers
        self.changes: ChangesChannel | None = None
        self.cache = self._make_cache(settings, store)

    def all(self) -> list[Service]:
        """In the order in which they start; they end in the opposite one."""
        rpc, pubsub, queues, cache = self.rpc, self.pubsub, self.queues, self.cache
        return [
            Service(name="deadlines", close=self.deadlines.close),
            Service(name="threads", close=self.threads.close),
            self._cluster(),
            Service(
                name="rpc",
                handlers={Rpc: rpc.request, RpcCancel: rpc.cancel},
                closed=rpc.closed,
                report=self._rpc_report,
                drain=rpc.drain,
            ),
            Service(
                name="topic_exchange",
                handlers=pubsub.handlers,
                closed=pubsub.closed,
                report=pubsub.report,
                start=self._subscribe_handlers,
                drain=pubsub.drain,
                close=pubsub.close,
            ),
            Service(
                name="message_queues",
                handlers=queues.handlers,
                closed=queues.closed,
                report=queues.report,
                start=queues.start,
                drain=queues.drain,
                close=queues.close,
            ),
            Service(
                name="cache",
                handlers=cache.handlers,
                closed=cache.closed,
                report=cache.report,
                start=self._start_cache,
                drain=cache.drain,
                close=self._close_cache,
            ),
        ]

    def _make_cache(self, settings: Settings, store: Store | None) -> CacheService:
        if store is None:
            return CacheService(None, self.pubsub.publish)

        def announce(update: Update) -> None:
            assert self.changes is not None
            service.watching.tell(update)
            self.changes.announce(update)
            if clustering is not None and update.key:
                clustering.cluster.broadcast(to_wire(update))

        clustering = self.clustering
        cache = Cache(store, settings.cache, disk_path=Path(settings.data_dir) / "cache", announce=announce)
        service = CacheService(cache, self.pubsub.publish)
        self.changes = ChangesChannel(store, service.node, service.heard, service.missed)
        if clustering is not None:
            clustering.cluster.tell.cache.append(lambda _node, payload: service.heard_gossip(payload))
        return service

    async def _start_cache(self) -> None:
        await self.cache.start()
        if self.changes is not None:
            await self.changes.start()

    async def _close_cache(self) -> None:
        if self.changes is not None:
            await self.changes.close()
        await self.cache.close()

    async def _subscribe_handlers(self) -> None:
        for handler in self._handlers:
            self.pubsub.add_handler(handler, self._in_thread)

    async def _in_thread(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return await self.threads.submit(call, args, {})

    def in_cluster(self) -> Clustering:
        """Raises `CLUSTER_NOT_CLUSTERED`."""
        if self.clustering is None:
            raise not_clustered()
        return self.clustering

    def _cluster(self) -> Service:
        clustering = self.clustering
        if clustering is None:
            return Service(name="cluster", handlers={Hello: refuse_hello})
        return Service(
            name="cluster",
            handlers=clustering.cluster.handlers,
            listening=clustering.listening,
            report=clustering.report,
            drain=clustering.drain,
            close=clustering.close,
        )

    def _rpc_report(self) -> dict[str, Any]:
        return {
            **self.rpc.statistics.report(),
            "active_connections": len(self.dispatch.sessions),
            "refused_connections": self.dispatch.refused,
            "running_requests": len(self.rpc),
            "busy_threads": self.threads.busy,
        }

"""A node among others: hands the cluster what functions this node has, and the services what the cluster knows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mpreg import __version__
from mpreg.client import connect
from mpreg.cluster import PRESETS
from mpreg.cluster.node_link import NodeLink
from mpreg.cluster.options import ClusterOptions, read_secret
from mpreg.cluster.seeds import Seeds
from mpreg.cluster.service import ClusterService
from mpreg.errors import ClusterError, ConfigError, MpregError
from mpreg.node.addresses import is_loopback
from mpreg.node.dispatch import Dispatch
from mpreg.node.settings import Settings, listed
from mpreg.pubsub import Across, PubSubService
from mpreg.rpc import ClusterPlacement, LocalFunction, LocalPlacement, Registry, RemoteCalls, RpcService, Threads
from mpreg.rpc.offers import Offered
from mpreg.rpc.remote import RemoteFunction
from mpreg.transport import Listener, TlsFiles, listen
from mpreg.transport.session import Session
from mpreg.transport.url import parse, url_of
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import ErrorResponse, to_exception
from mpreg.wire.gossip import NodeHealth, NodeInfo
from mpreg.wire.lifecycle import Offer
from mpreg.wire.rpc import Command, InternalAnswer, InternalRpc, RpcCancel

OWN_FUNCTIONS: Final = "mpreg.node.functions"
"""What each node tells of its own functions; `mpreg.functions` asks all of them."""
NODE_TOPIC: Final = "mpreg.cluster.node"
"""What becomes of other nodes, for who subscribes to it at this one."""
ASK_S: Final = 2.0
SUSPECT: Final = 1e6
"""Added to the load of a node that may be dead: it gets a call only if nobody else has the function."""
ADVERTISED: Final = ("cluster", "tcps", "tcp", "wss", "ws")
"""Which listener other nodes should use, best first."""


class Clustering:
    """Of one run of a node that is part of a cluster."""

    def __init__(self, settings: Settings, registry: Registry, threads: Threads, dispatch: Dispatch) -> None:
        self.cluster = ClusterService(options_of(settings), dispatch.divert, self._offers, self._health)
        self.calls = RemoteCalls()
        self.local = LocalPlacement(registry, threads, settings.debug)
        self.placement = ClusterPlacement(self.local, self.calls, self._load, self._has_room)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settings = settings
        self._registry = registry
        self._threads = threads
        self._rpc: RpcService | None = None
        self._listener: Listener | None = None
        self._client_urls: list[str] = []
        self._pubsub: PubSubService | None = None
        self._across: Across | None = None
        self._suspects: set[str] = set()
        tell = self.cluster.tell
        tell.offers.append(self._offered)
        tell.unlinked.append(self._unlinked)
        tell.nodes.append(self._node_changed)
        tell.failed.append(self._failed)

    def use(self, rpc: RpcService) -> None:
        self._rpc = rpc
        rpc.in_cluster(self.local)
        self.cluster.on_message(InternalRpc, rpc.internal)
        self.cluster.on_message(RpcCancel, rpc.cancel)
        self.cluster.on_message(InternalAnswer, self.calls.answered)
        self.cluster.on_message(ErrorResponse, self._on_error)

    def use_topics(self, pubsub: PubSubService) -> None:
        self._pubsub = pubsub
        across = self._across = pubsub.in_cluster()
        for message_type, handler in across.handlers.items():
            self.cluster.on_message(message_type, handler)
        self.cluster.tell.linked.append(lambda node: across.linked(node, node.peer.run))
        self.cluster.tell.unlinked.append(lambda node, _: across.unlinked(node))

    def topics(self, own: list[str]) -> dict[str, list[str]]:
        """Which patterns somebody wants, by node. Of a node that has very many, wider ones that stand for them."""
        across = self._across
        others = {} if across is None else {node.node_id: across.wanted_by(node) for node in self._linked()}
        return {self._settings.name: own, **others}

    def _linked(self) -> list[NodeLink]:
        return list(self.cluster.links.nodes.values())

    # The life of the service.

    async def listening(self, listeners: Mapping[str, str]) -> None:
        settings, urls = self._settings, dict(listeners)
        if settings.cluster_port != "off":
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            url = f"tcp://{host}:{settings.cluster_port}"
            limits, share = self.cluster.options.limits, settings.reuse_port
            self._listener = await listen(url, self.cluster.accept, limits=limits, share=share)
            urls["cluster"] = self._listener.url
        reached = self.cluster.options.advertise or [_reachable(urls[name]) for name in ADVERTISED if name in urls]
        nodes_only = None if self._listener is None else parse(self._listener.url).port
        self._client_urls = [url for url in reached if parse(url).port != nodes_only]
        self.cluster.options.meta["clients"] = " ".join(self._client_urls)
        await self.cluster.listening(tuple(_reachable(urls[name]) for name in ADVERTISED if name in urls))

    async def drain(self, grace_s: float) -> None:
        if self._listener is not None:
            self._listener.close()
        await self.cluster.drain()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        await self.cluster.close()

    def report(self) -> dict[str, Any]:
        return {
            **self.cluster.report(),
            **({} if self._across is None else self._across.report()),
            "calls_sent": self.calls.sent,
            "calls_open": len(self.calls),
            "calls_repeated": self.calls.repeated,
            "calls_lost": self.calls.lost_calls,
        }

    # What the built-in functions tell.

    def nodes(self, own: dict[str, Any]) -> list[dict[str, Any]]:
        """This node, and what it thinks of the others."""
        links = self.cluster.links
        me = {**own, "state": "alive", "self": True, "cluster": self._settings.cluster}
        me["advertised_urls"] = self.cluster.machine.me.advertised_urls
        me["client_urls"] = self._client_urls
        found = [me]
        for node_id, member in sorted(self.cluster.machine.members().items()):
            health = self.cluster.health.get(node_id)
            found.append(
                {
                    "name": node_id,
                    "version": member.node.meta.get("version", ""),
                    "pid": int(member.node.meta.get("pid", 0)),
                    "state": member.state,
                    "linked": node_id in links.nodes,
                    "advertised_urls": member.node.advertised_urls,
                    "client_urls": member.node.meta.get("clients", "").split(),
                    "run": member.node.run_id,
                    "started": member.node.started,
                    "incarnation": member.node.incarnation,
                    "calls_open": self.calls.open_at(links.nodes[node_id]) if node_id in links.nodes else 0,
                    "clock_ahead_s": round(links.skews_s.get(node_id, 0.0), 3),
                    **({} if health is None else {"load": health.load, "draining": health.draining}),
                }
            )
        return found

    async def functions(self, own: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """All functions of the cluster; one entry for each name and set of resources, with everyone who has it."""
        answers = await asyncio.gather(*(self._functions_of(node) for node in list(self.cluster.links.nodes.values())))
        found: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
        for function in (each for part in (own, *answers) for each in part):
            key = (function["name"], tuple(function["resources"]))
            known = found.setdefault(key, {**function, "providers": []})
            known["providers"] += function["providers"]
        return list(found.values())

    def state(self) -> list[dict[str, Any]]:
        """What the nodes share."""
        return [
            {
                "key": key,
                "value": codec.decode_value(change.value, Encoding.MSGPACK) if change.value is not None else None,
                "version": change.version,
                "source_node": change.source_node,
            }
            for key, change in sorted(self.cluster.state.items())
        ]

    def refusals(self) -> dict[str, str]:
        """Why addresses that were tried have no link."""
        return {url: str(error) for url, error in self.cluster.links.refusals.items()}

    async def _functions_of(self, node: NodeLink) -> list[dict[str, Any]]:
        """Nothing of a node that does not answer in time."""
        asking = RemoteFunction(self.calls, Offered(node, frozenset(), False), lambda *_: None)
        with contextlib.suppress(MpregError, TimeoutError):
            async with asyncio.timeout(ASK_S):
                raw = await asking.call(Command("", OWN_FUNCTIONS), Encoding.MSGPACK, ASK_S)
            return msgspec.msgpack.decode(raw, type=list[dict[str, Any]])
        return []

    # What the cluster asks of this node.

    def _offers(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Offer, ...]]:
        functions = list(self._registry)
        names = tuple(dict.fromkeys(function.name for function in functions))
        locs = tuple(sorted({loc for function in functions for loc in function.locs}))
        offers = tuple(
            Offer(function.name, tuple(sorted(function.locs)), function.idempotent)
            for function in functions
            if function.locs or function.idempotent
        )
        return names, locs, offers

    def _health(self) -> NodeHealth:
        assert self._rpc is not None
        running = self._rpc.running
        share = round(running / self._settings.rpc.own_requests_max, 2)
        return NodeHealth(load=share, calls=running, draining=self._rpc.is_draining)

    # What it tells.

    def _offered(self, node: NodeLink) -> None:
        peer = node.peer
        more = {offer.name for offer in peer.offers}
        plain = [(name, (), False) for name in peer.funs if name not in more]
        detailed = [(offer.name, offer.locs, offer.idempotent) for offer in peer.offers]
        self.placement.offers.set(node, [*plain, *detailed])

    def _unlinked(self, node: NodeLink, error: MpregError | None) -> None:
        self.placement.offers.remove(node)
        self.calls.lost(node, error)
        if self._rpc is not None:
            self._rpc.closed(node)

    def _node_changed(self, info: NodeInfo, state: str) -> None:
        if self._pubsub is not None:
            change = {
                "node": info.node_id,
                "state": state,
                "run": info.run_id,
                "urls": info.advertised_urls,
                "at": time.time(),
                "seen_by": self._settings.name,
            }
            self._pubsub.announce(NODE_TOPIC, change)
        if state == "suspect":
            self._suspects.add(info.node_id)
        else:
            self._suspects.discard(info.node_id)

    def _failed(self, error: MpregError) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # maybe nobody awaits it

    def _on_error(self, node: NodeLink, message: ErrorResponse, encoding: Encoding) -> None:
        if isinstance(message.u, str):
            self.calls.refused(node, message.u, to_exception(message.error))

    # Placement.

    def _load(self, session: Session) -> float:
        assert isinstance(session, NodeLink)
        health = self.cluster.health.get(session.node_id)
        if session.leaving or (health is not None and health.draining):
            return float("inf")
        load = 0.0 if health is None else float(health.calls)
        return load + SUSPECT if session.node_id in self._suspects else load

    def _has_room(self, function: LocalFunction) -> bool:
        if function.waits:
            return self._threads.is_free
        assert self._rpc is not None
        return self._rpc.running < self._settings.rpc.own_requests_max


async def shared_store(settings: Settings) -> str:
    """The URL of the store that a node of the cluster shares."""
    last: MpregError | None = None
    for place in await Seeds(listed(settings.join)).urls():
        try:
            async with connect(place, timeout_s=ASK_S) as client:
                found = await client.call("mpreg.cluster.store")
            if found:
                return str(found)
        except MpregError as error:
            last = error
    why = f": {last}" if last else ", or none was started with --share-store"
    raise ConfigError("CONFIG_INVALID", f"store: no node in `join` answers{why}", setting="store")


def options_of(settings: Settings) -> ClusterOptions:
    """Raises `ConfigError` for settings that do not go together."""
    if settings.store == "embedded:" and not settings.share_store:
        raise ConfigError(
            "CONFIG_INVALID",
            "store: the nodes of a cluster share theirs; name a server with --store URL, turn it off with --store off, "
            "or for development start one node with --share-store and the others with --store shared:",
            setting="store",
        )
    certified = settings.tls_cert is not None and settings.tls_ca is not None and settings.tls_require_client_cert
    advertise = listed(settings.advertise)
    for url in advertise:
        try:
            parse(url)
        except MpregError as error:
            raise ConfigError("CONFIG_INVALID", f"advertise: {error.message}", setting="advertise") from None
    secret = None if settings.cluster_secret_file is None else read_secret(settings.cluster_secret_file)
    hosts = [settings.host, *(parse(url).host for url in advertise)]
    if secret is None and not certified and not all(map(is_loopback, hosts)):
        raise ConfigError(
            "CONFIG_INVALID",
            "cluster_secret_file: a cluster that is reached from other machines needs a secret, or certificates on "
            "both sides (tls_cert, tls_key, tls_ca and tls_require_client_cert)",
            setting="cluster_secret_file",
        )
    files = settings.tls_cert or settings.tls_ca
    return ClusterOptions(
        cluster_id=settings.cluster,
        node_id=settings.name,
        join=listed(settings.join),
        advertise=advertise,
        secret=secret,
        tls=TlsFiles(cert=settings.tls_cert, key=settings.tls_key, ca=settings.tls_ca) if files else None,
        figures=PRESETS[settings.membership],
        meta={"version": __version__, "pid": str(os.getpid())},
    )


def _reachable(url: str) -> str:
    """An address that stands for all of this machine's is of no use to others; its name may be."""
    scheme, host, port, _ = parse(url)
    return url_of(scheme, socket.gethostname(), port) if host in ("0.0.0.0", "::") else url  # noqa: S104


def not_clustered() -> ClusterError:
    return ClusterError("CLUSTER_NOT_CLUSTERED", "This node is in no cluster; start it with --cluster ID")


def refuse_hello(session: Session, message: Any, encoding: Encoding) -> None:
    """Of a node that is in no cluster."""
    raise not_clustered()

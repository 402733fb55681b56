"""One node's part in its cluster: hands what happens to the machine, and does what the machine says.

It knows no other service: who wants to hear of nodes, of state or of news is told by the callables in `Listeners`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mpreg.cluster.effects import (
    Decided,
    Dial,
    Effect,
    HealthHeard,
    Heard,
    NameTaken,
    NodeChanged,
    NodeState,
    Send,
    StateChanged,
    WakeAt,
)
from mpreg.cluster.events import (
    Event,
    Farewell,
    Health,
    Leave,
    Linked,
    Propose,
    Put,
    Received,
    Spread,
    Tick,
    Unlinked,
    Withdraw,
)
from mpreg.cluster.handshake import Identity
from mpreg.cluster.links import Divert, Links
from mpreg.cluster.machine import Machine
from mpreg.cluster.node_link import NodeHandler, NodeLink
from mpreg.cluster.options import ClusterOptions
from mpreg.cluster.seeds import Seeds
from mpreg.errors import ClusterError, MpregError, TransportError
from mpreg.transport import Backoff, Link, LinkHandler
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.gossip import CacheUpdate, Gossip, NodeHealth, NodeInfo, Rumor, decode_payload, in_messagepack
from mpreg.wire.lifecycle import Hello, Offer
from mpreg.wire.message import Message

log = logging.getLogger(__name__)

HEALTH_S = 1.0
"""How often this node looks at its own load."""
SEEDS_S = 20.0
"""How often seeds that are not linked are tried again once the node has found others."""

NAME_S = 30.0
"""So long a node whose name is taken waits for the other one to be noticed as dead: it may be its own last run."""

Offers = Callable[[], tuple[tuple[str, ...], tuple[str, ...], tuple[Offer, ...]]]
"""Functions, all their resources, and those functions of which there is more to say."""


class Listeners:
    """Who is told of what. Each callable is called from the loop and must not wait."""

    def __init__(self) -> None:
        self.linked: list[Callable[[NodeLink], None]] = []
        self.unlinked: list[Callable[[NodeLink, MpregError | None], None]] = []
        self.offers: list[Callable[[NodeLink], None]] = []
        """A linked node tells what functions it has now (`node.peer`)."""
        self.nodes: list[Callable[[NodeInfo, NodeState], None]] = []
        self.state: list[Callable[[StateChanged], None]] = []
        self.rumors: dict[str, Callable[[Gossip, Rumor], None]] = {}
        """By the name of the rumor."""
        self.cache: list[Callable[[str, CacheUpdate], None]] = []
        """Of changes that another node tells: its id, and what changed."""
        self.failed: list[Callable[[MpregError], None]] = []
        """This node can't stay in the cluster."""


class ClusterService:
    def __init__(
        self, options: ClusterOptions, divert: Divert, offers: Offers, health: Callable[[], NodeHealth]
    ) -> None:
        self.options = options
        self.tell = Listeners()
        self.run_id = secrets.token_hex(8)
        self.started = time.time()
        self.state: dict[str, StateChanged] = {}
        """What the nodes share, as this one knows it."""
        self.health: dict[str, NodeHealth] = {}
        self.links = Links(
            self._identity,
            options.secret,
            divert,
            linked=self._on_linked,
            unlinked=self._on_unlinked,
            left=self._on_goodbye,
            refuses=lambda peer: self.machine.refuses(_info_of(peer)) is not None,
            tls=options.tls,
            limits=options.limits,
        )
        self.links.handlers[Gossip] = self._on_gossip
        self.links.handlers[Hello] = self._on_hello
        self._offers = offers
        self._own_health = health
        self._said_health: NodeHealth | None = None
        self._machine: Machine | None = None
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.TimerHandle | None = None
        self._health_timer: asyncio.TimerHandle | None = None
        self._events: deque[Event] = deque()
        self._stepping = False
        self._seeds = Seeds(options.join)
        self._seeking: asyncio.Task[None] | None = None
        self._proposals: dict[str, asyncio.Future[Decided]] = {}
        self.left = False

    # For the node.

    @property
    def handlers(self) -> Mapping[type[Message], Callable[[Session, Any, Encoding], None]]:
        """Of clients' messages: whoever says HELLO wants to be a node."""
        return self.links.handlers_of_clients

    def accept(self, link: Link) -> LinkHandler:
        """For a listener that only nodes know of."""
        return self.links.accept(link)

    def on_message(self, message_type: type[Message], handler: NodeHandler) -> None:
        """Which messages of other nodes go to whom."""
        assert message_type not in self.links.handlers, f"two services take {message_type}"
        self.links.handlers[message_type] = handler

    async def listening(self, urls: tuple[str, ...]) -> None:
        """Everybody can connect: begin to look for the others."""
        options = self.options
        me = NodeInfo(
            node_id=options.node_id,
            cluster_id=options.cluster_id,
            run_id=self.run_id,
            started=self.started,
            advertised_urls=options.advertise or urls,
            meta=options.meta,
        )
        self._machine = Machine(
            me, options.figures, random.Random(random.getrandbits(64)), time.time() - self._loop.time()
        )
        self.step(Tick())
        self._look_at_health()
        if options.join:
            self._seeking = self._loop.create_task(self._seek(), name="mpreg-seeds")

    async def drain(self) -> None:
        """Tell everyone that this node leaves; what runs goes on."""
        self.leave()

    def leave(self) -> None:
        if not self.left and self._machine is not None:
            self.step(Leave())
            self.left = True
            self.links.say_goodbye()

    async def close(self) -> None:
        self.left = True
        for timer in (self._wake, self._health_timer):
            if timer is not None:
                timer.cancel()
        if self._seeking is not None:
            self._seeking.cancel()
            await asyncio.wait([self._seeking])
        await self.links.close()
        self._machine = None
        for waiting in self._proposals.values():
            waiting.cancel()

    # What others make of it.

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            raise ClusterError(
                "CLUSTER_NODE_NOT_FOUND", "This node is not in its cluster (yet, or any more)", retryable=True
            )
        return self._machine

    def put(self, key: str, value: Any, ttl_s: float | None = None) -> None:
        """Share it with all nodes. Raises `ClusterError` for a key or value over its limit."""
        self.step(Put(key, value, ttl_s))

    def withdraw(self, key: str) -> None:
        self.step(Withdraw(key))

    def broadcast(self, payload: CacheUpdate | Rumor) -> None:
        """Tell every node once; who is away misses it."""
        if self._machine is not None:
            self.step(Spread(payload))

    def offers_changed(self) -> None:
        """This node has other functions than it told."""
        hello = self._hello()
        for node in self.links.nodes.values():
            node.send(hello, Encoding.MSGPACK)

    async def propose(self, key: str, value: Any) -> Decided:
        """A majority of the known members decides."""
        proposal_id = secrets.token_hex(8)
        waiting: asyncio.Future[Decided] = self._loop.create_future()
        self._proposals[proposal_id] = waiting
        try:
            self.step(Propose(proposal_id, key, value))
            return await waiting
        finally:
            self._proposals.pop(proposal_id, None)

    def report(self) -> dict[str, Any]:
        states = [member.state for member in self._machine.members().values()] if self._machine else []
        return {
            "cluster_id": self.options.cluster_id,
            "nodes": {state: states.count(state) for state in sorted(set(states))},
            "links": len(self.links.nodes),
            "state_keys": len(self.state),
            **dict(sorted(self.links.counts.items())),
        }

    # Events.

    def step(self, event: Event) -> None:
        """What an effect brings about comes after the other effects of its step."""
        machine = self._machine
        if machine is None or self.left:
            return
        if self._stepping:
            self._events.append(event)
            return
        self._stepping = True
        try:
            self._do_all(machine.step(self._loop.time(), event))
            while self._events:
                self._do_all(machine.step(self._loop.time(), self._events.popleft()))
        finally:
            self._stepping = False

    def _on_linked(self, node: NodeLink) -> None:
        log.info("Linked with %s at %s", node.node_id, node.link.url)
        for tell in (*self.tell.linked, *self.tell.offers):
            tell(node)
        self.step(Linked(_info_of(node.peer)))

    def _on_unlinked(self, node: NodeLink, error: MpregError | None) -> None:
        reason = "closed" if error is None else error.message
        log.info("The link with %s is gone: %s", node.node_id, reason)
        self.health.pop(node.node_id, None)
        for tell in self.tell.unlinked:
            tell(node, error)
        self.step(Unlinked(node.node_id, reason))

    def _on_goodbye(self, node: NodeLink) -> None:
        self.step(Farewell(node.node_id))

    def _on_gossip(self, node: NodeLink, message: Gossip, encoding: Encoding) -> None:
        if encoding is Encoding.JSON:
            message = in_messagepack(message)
        self.step(Received(node.node_id, message))

    def _on_hello(self, node: NodeLink, hello: Hello, encoding: Encoding) -> None:
        """Said again on an open link: the functions that the node has now."""
        if hello.node_id != node.node_id or hello.run != node.peer.run:
            self.links.counts["forged_hellos"] += 1
            return
        node.peer = msgspec.structs.replace(node.peer, funs=hello.funs, locs=hello.locs, offers=hello.offers)
        for tell in self.tell.offers:
            tell(node)

    # Effects.

    def _do_all(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(node_id, message):
                node = self.links.nodes.get(node_id)
                if node is not None:
                    node.link.send(codec.encode_msgpack(message), Encoding.MSGPACK)
            case WakeAt(at):
                if self._wake is not None:
                    self._wake.cancel()
                self._wake = self._loop.call_at(at, self._tick)
            case Dial(node_id, urls):
                self.links.ensure(node_id, urls)
            case NodeChanged(info, state):
                self._node_changed(info, state)
            case StateChanged(key=key, value=value):
                if value is None:
                    self.state.pop(key, None)
                else:
                    self.state[key] = effect
                for tell in self.tell.state:
                    tell(effect)
            case HealthHeard(node_id, health):
                if node_id in self.links.nodes:
                    self.health[node_id] = health
            case Heard(message):
                self._heard(message)
            case Decided(proposal_id=proposal_id):
                waiting = self._proposals.get(proposal_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(effect)
            case NameTaken(holder):
                self._fail(f"at {', '.join(holder.advertised_urls)}")

    def _tick(self) -> None:
        self._wake = None
        self.step(Tick())

    def _node_changed(self, info: NodeInfo, state: NodeState) -> None:
        log.log(logging.INFO if state in ("alive", "left") else logging.WARNING, "%s is %s", info.node_id, state)
        node = self.links.nodes.get(info.node_id)
        if state == "dead" and node is not None and node.peer.run == info.run_id:
            text = f"{info.node_id} does not answer and counts as dead"
            self.links.close_link(info.node_id, TransportError("TRANSPORT_CONNECTION_LOST", text, state_changed=None))
        for tell in self.tell.nodes:
            tell(info, state)

    def _heard(self, message: Gossip) -> None:
        try:
            payload = decode_payload(message)
        except (msgspec.DecodeError, RecursionError):
            self.links.counts["unreadable_news"] += 1
            return
        if isinstance(payload, CacheUpdate):
            for tell in self.tell.cache:
                tell(message.sender_id, payload)
        elif isinstance(payload, Rumor):
            handler = self.tell.rumors.get(payload.name)
            if handler is not None:
                handler(message, payload)

    def _fail(self, where: str) -> None:
        me = self.options.node_id
        error = ClusterError(
            "CLUSTER_NAME_TAKEN",
            f"A node {where} is called {me!r} and was there before: this one leaves the cluster; give it another name",
            node_id=me,
        )
        log.error("%s", error)
        self.left = True
        for node_id in list(self.links.nodes):
            self.links.close_link(node_id, error)
        for tell in self.tell.failed:
            tell(error)

    # Who this node is and how it is doing.

    def _identity(self) -> Identity:
        me = self.machine.me
        funs, locs, offers = self._offers()
        return Identity(
            node_id=me.node_id,
            run=me.run_id,
            cluster_id=me.cluster_id,
            urls=me.advertised_urls,
            funs=funs,
            locs=locs,
            offers=offers,
            started=me.started,
            incarnation=me.incarnation,
            meta=me.meta,
        )

    def _hello(self) -> Hello:
        me = self._identity()
        return Hello(me.funs, me.locs, me.cluster_id, me.urls, node_id=me.node_id, run=me.run, offers=me.offers)

    def _look_at_health(self) -> None:
        health = self._own_health()
        if health != self._said_health:
            self._said_health = health
            self.step(Health(health))
        self._health_timer = self._loop.call_later(HEALTH_S, self._look_at_health)

    # Finding the others.

    async def _seek(self) -> None:
        """Every seed whose node is not linked, again and again: also after a partition in which each side has forgotten
        the other."""
        backoff = Backoff(base_s=0.1, max_s=10.0)
        found: dict[str, str] = {}
        taken_since = math.inf
        while not self.left:
            for url in await self._seeds.urls():
                if found.get(url) in (*self.links.nodes, self.options.node_id):
                    continue
                try:
                    found[url] = await self.links.dial(url)
                except MpregError as error:
                    if error.code in ("CLUSTER_SELF", "CLUSTER_ALREADY_LINKED"):
                        found[url] = str(error.details.get("node_id", ""))
                        continue
                    if error.code == "CLUSTER_NAME_TAKEN":
                        taken_since = min(taken_since, self._loop.time())
                    quiet = self.links.nodes or error.code.startswith(("TRANSPORT_", "TIMEOUT_"))
                    log.log(logging.DEBUG if quiet else logging.WARNING, "%s does not let this node in: %s", url, error)
            if self._loop.time() - taken_since > NAME_S and not self.links.nodes:
                self._fail(f"of the cluster {self.options.cluster_id!r}")
                return
            if self.links.nodes:
                taken_since = math.inf
                backoff.reset()
                await asyncio.sleep(SEEDS_S * (0.5 + random.random()))
            else:
                await asyncio.sleep(0.05 + backoff.next_s(random.random()))


def _info_of(peer: Identity) -> NodeInfo:
    return NodeInfo(
        node_id=peer.node_id,
        cluster_id=peer.cluster_id,
        run_id=peer.run,
        started=peer.started,
        advertised_urls=peer.urls,
        incarnation=peer.incarnation,
        meta=peer.meta,
    )

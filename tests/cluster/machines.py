"""Builders: nodes, their records, and messages as a peer would make them."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from mpreg.cluster.core import Core
from mpreg.cluster.effects import Effect, Send, WakeAt
from mpreg.cluster.events import Event, Linked, Received, Tick
from mpreg.cluster.machine import Machine
from mpreg.cluster.settings import LAN, ClusterSettings
from mpreg.wire.gossip import EventType, Gossip, MembershipUpdate, MessageType, NodeInfo, Payload, decode_payload

EPOCH = 1_700_000_000.0


def node(node_id: str, *, incarnation: int = 0, run: str = "1", started: float = EPOCH, **fields: Any) -> NodeInfo:
    return NodeInfo(
        node_id=node_id,
        cluster_id=fields.pop("cluster_id", "c"),
        run_id=f"{node_id}-{run}",
        started=started,
        incarnation=incarnation,
        advertised_urls=fields.pop("advertised_urls", (f"tcp://{node_id}:6668",)),
        **fields,
    )


def said(event_type: EventType, about: NodeInfo, by: str = "z", at: float = EPOCH) -> MembershipUpdate:
    return MembershipUpdate(event_type=event_type, node=about, source_node=by, timestamp=at)


class Peer:
    """Makes messages of one node."""

    def __init__(self, node_id: str, info: NodeInfo | None = None) -> None:
        self.info = info or node(node_id)
        self._core = Core(self.info, LAN, random.Random(1), EPOCH)

    def says(self, message_type: MessageType, payload: Payload, u: str | None = None, now: float = 0.0) -> Received:
        self._core.now = now
        message = self._core.seal(message_type, payload, msgspec.UNSET if u is None else u)
        return Received(self.info.node_id, message)


class One:
    """A machine under test, with the time at which it is stepped."""

    def __init__(self, node_id: str = "a", settings: ClusterSettings = LAN, **fields: Any) -> None:
        self.machine = Machine(node(node_id, **fields), settings, random.Random(7), EPOCH)
        self.now = 0.0

    def step(self, *happened: Event) -> list[Effect]:
        effects: list[Effect] = []
        for event in happened or (Tick(),):
            effects += self.machine.step(self.now, event)
        return effects

    def wait(self, seconds: float) -> list[Effect]:
        """Lives through this time as a shell would: a tick whenever one is due."""
        until = self.now + seconds
        effects: list[Effect] = []
        while True:
            found = self.machine.step(self.now, Tick())
            effects += found
            wake = found[-1]
            assert isinstance(wake, WakeAt)
            if wake.at > until:
                self.now = until
                return effects
            self.now = max(self.now, wake.at)

    def link(self, *peers: Peer) -> list[Effect]:
        return self.step(*(Linked(peer.info) for peer in peers))


def sent(effects: list[Effect], message_type: MessageType | None = None, to: str | None = None) -> list[Gossip]:
    return [
        effect.message
        for effect in effects
        if isinstance(effect, Send)
        and message_type in (None, effect.message.message_type)
        and to in (None, effect.node_id)
    ]


def payloads(effects: list[Effect], message_type: MessageType, to: str | None = None) -> list[Any]:
    return [decode_payload(message) for message in sent(effects, message_type, to)]


def only(effects: list[Effect], kind: type[Effect]) -> list[Any]:
    return [effect for effect in effects if isinstance(effect, kind)]

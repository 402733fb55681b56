"""What the parts of the machine share: who this node is, the time of the step, the tables, and the effects so far."""

from __future__ import annotations

import random as random_module
from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from mpreg.cluster.awareness import Awareness
from mpreg.cluster.broadcasts import Broadcasts
from mpreg.cluster.digests import Digest, part_of
from mpreg.cluster.effects import Effect, Send
from mpreg.cluster.intake import Intake
from mpreg.cluster.members import Members, version_hash
from mpreg.cluster.record import ALIVE, LEFT, Record
from mpreg.cluster.roster import Roster
from mpreg.cluster.settings import ClusterSettings
from mpreg.cluster.shared_state import SharedState
from mpreg.cluster.timers import Timers
from mpreg.cluster.timing import retransmits
from mpreg.cluster.vector_clock import Clock
from mpreg.wire.gossip import (
    Gossip,
    MembershipUpdate,
    MessageType,
    NodeHealth,
    NodeInfo,
    Payload,
    Updates,
    checksum_of,
    digest_of,
    encode_payload,
)

TTL = 5
HOPS_MAX = 3
"""Of messages that are passed on."""


class Core:
    def __init__(self, me: NodeInfo, settings: ClusterSettings, random: random_module.Random, epoch: float) -> None:
        self.me = me
        self.settings = settings
        self.random = random
        self.epoch = epoch
        self.now = 0.0
        self.out: list[Effect] = []
        self.timers = Timers()
        self.awareness = Awareness(settings.awareness_max)
        self.clock = Clock(me.node_id)
        self.intake = Intake(settings)
        self.digest = Digest()
        self.members = Members(self.digest)
        self.state = SharedState(self.digest)
        self.broadcasts = Broadcasts()
        self.links: dict[str, str] = {}
        """node_id -> run_id of who is at the other end."""
        self.reach = Roster()
        """Members that live and have a link."""
        self.health = NodeHealth()
        self.leaving = False
        self._sequence = 0
        self._my_hash = version_hash(self.my_record())
        self.digest.add(part_of(me.node_id), self._my_hash)
        self.state.count_owner(me.node_id)

    @property
    def wall(self) -> float:
        """Seconds since 1970."""
        return self.epoch + self.now

    @property
    def nodes(self) -> int:
        return len(self.members.live) + 1

    def my_record(self) -> Record:
        return Record(self.me, LEFT if self.leaving else ALIVE, self.me.node_id, self.epoch + self.now)

    def my_health(self) -> NodeHealth:
        if self.health.awareness != self.awareness.score:
            self.health = msgspec.structs.replace(self.health, awareness=self.awareness.score)
        return self.health

    def become(self, me: NodeInfo) -> None:
        """This node's own info has changed."""
        part = part_of(me.node_id)
        self.digest.remove(part, self._my_hash)
        self.me = me
        self._my_hash = version_hash(self.my_record())
        self.digest.add(part, self._my_hash)
        self.clock.tick()

    def effect(self, effect: Effect) -> None:
        self.out.append(effect)

    def send(self, node_id: str, message_type: MessageType, payload: Payload, u: str | UnsetType = UNSET) -> None:
        """To a node that has a link."""
        self.effect(Send(node_id, self.seal(message_type, payload, u)))

    def seal(
        self,
        message_type: MessageType,
        payload: Payload,
        u: str | UnsetType = UNSET,
        *,
        passed_on: bool = False,
        seen_by: tuple[str, ...] = (),
    ) -> Gossip:
        """A message of this node's own. One that is not to be passed on has no hops to go."""
        self._sequence += 1
        me = self.me.node_id
        message_id = f"{me}:{self.me.run_id}:{self._sequence}"
        body = encode_payload(payload)
        digest = digest_of(body)
        return Gossip(
            message_id=message_id,
            message_type=message_type,
            sender_id=me,
            payload=body,
            vector_clock=self.clock.excerpt(_sources(payload)),
            sequence_number=self._sequence,
            ttl=TTL if passed_on else 1,
            hop_count=0,
            max_hops=HOPS_MAX if passed_on else 0,
            digest=digest,
            checksum=checksum_of(message_id, message_type, me, self._sequence, digest),
            created_at=self.wall,
            expires_at=self.wall + self.settings.message_lifetime_s,
            propagation_path=(me,),
            seen_by=seen_by or (me,),
            u=u,
        )

    def take_news(self, first: MembershipUpdate | None = None) -> Updates:
        """What to tell a node now."""
        return self.broadcasts.take(self.settings.gossip_bytes_max, retransmits(self.settings, self.nodes), first)

    def draw(self, count: int, without: Iterable[str] = ()) -> list[str]:
        """Some of the members that can be reached."""
        return self.reach.draw(self.random, count, frozenset(without))


def _sources(payload: Payload) -> Iterable[str]:
    updates = getattr(payload, "updates", None)
    if not isinstance(updates, Updates):
        return ()
    return [each.source_node for each in updates.state[:16]]


def passed_on(message: Gossip, me: str, seen_by: tuple[str, ...]) -> Gossip:
    """One hop further. What the digest and the checksum cover stays as it was."""
    return msgspec.structs.replace(
        message,
        ttl=message.ttl - 1,
        hop_count=message.hop_count + 1,
        propagation_path=(*message.propagation_path, me),
        seen_by=seen_by,
    )

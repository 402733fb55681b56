"""What a node of a cluster does, as a pure machine: `step(now, event) -> effects`. No clock, no socket, no chance in it
but what is handed in.

`now` are the seconds of a clock that never goes back; `epoch` is what the wall clock showed when that one was at 0. The
effects are to be carried out in their order. A step either takes its event whole or raises `ClusterError` and has
changed nothing; only events of the own node (`Put`, `Withdraw`, `Spread`, `Propose`, `Describe`) can raise.
"""

from __future__ import annotations

import math
import random as random_module
from collections.abc import Iterable, Mapping

import msgspec

from mpreg.cluster import events
from mpreg.cluster.anti_entropy import AntiEntropyRounds
from mpreg.cluster.ballots import Ballots
from mpreg.cluster.core import Core
from mpreg.cluster.dialling import Dialling
from mpreg.cluster.effects import Effect, HealthHeard, NodeChanged, NodeState, WakeAt
from mpreg.cluster.intake import Reason, fault_of_node
from mpreg.cluster.membership import Membership
from mpreg.cluster.prober import Prober
from mpreg.cluster.record import ALIVE, STATES, Record
from mpreg.cluster.settings import LAN, ClusterSettings
from mpreg.cluster.shared_state import Entry
from mpreg.cluster.spreading import Spreading
from mpreg.cluster.state_keys import CONFIG_PREFIX, StateKeys
from mpreg.errors import ClusterError
from mpreg.wire.gossip import (
    AntiEntropy,
    CacheUpdate,
    ConsensusProposal,
    ConsensusVote,
    Gossip,
    Heartbeat,
    MembershipAck,
    MembershipProbe,
    MembershipUpdate,
    NodeInfo,
    Rumor,
    StateUpdate,
    Updates,
)

HOUSEKEEPING_S = 10.0
NOTHING_DUE_S = 3600.0
"""`WakeAt` after so long when nothing is due at all: this node has left."""


class Member(msgspec.Struct, frozen=True):
    """What this node thinks of another one."""

    node: NodeInfo
    state: NodeState
    linked: bool


class Machine:
    """`known` are members to begin with, held for alive; they are probed and compared with like any other."""

    def __init__(
        self,
        me: NodeInfo,
        settings: ClusterSettings = LAN,
        random: random_module.Random | None = None,
        epoch: float = 0.0,
        known: Iterable[NodeInfo] = (),
    ) -> None:
        fault = fault_of_node(me, me.cluster_id)
        if fault is not None or not me.cluster_id:
            raise ClusterError("CLUSTER_INVALID_NODE", f"{me.node_id[:64]!r} can't be a node: its {fault or 'cluster'}")
        core = self._core = Core(me, settings, random or random_module.Random(me.run_id), epoch)
        self._membership = Membership(core)
        self._keys = StateKeys(core)
        self._prober = Prober(core, self._membership)
        self._anti_entropy = AntiEntropyRounds(core, self._membership, self._keys)
        self._ballots = Ballots(core, self._keys)
        self._spreading = Spreading(core)
        self._dialling = Dialling(core, self._membership)
        self._started = False
        self._wake_at = math.inf
        for node in known:
            if node.node_id != me.node_id and fault_of_node(node, me.cluster_id) is None:
                core.members.set(Record(node, ALIVE, me.node_id, core.wall))
                core.state.count_owner(node.node_id)

    @property
    def me(self) -> NodeInfo:
        return self._core.me

    @property
    def settings(self) -> ClusterSettings:
        return self._core.settings

    @property
    def dropped(self) -> Mapping[Reason, int]:
        """How many messages and updates were dropped, by reason."""
        return self._core.intake.dropped

    @property
    def digest(self) -> int:
        """The same on two nodes that agree on who lives and on the shared state."""
        return self._core.digest.total

    @property
    def vector_clock(self) -> Mapping[str, int]:
        return self._core.clock.counts

    @property
    def awareness(self) -> int:
        """0: this node is well; higher: it misses answers that others get."""
        return self._core.awareness.score

    @property
    def known(self) -> int:
        """How many nodes this one knows, itself and the dead among them."""
        return len(self._core.members) + 1

    @property
    def waiting_news(self) -> int:
        return len(self._core.broadcasts)

    def members(self) -> dict[str, Member]:
        """Every other node that is known, by its id."""
        links = self._core.links
        return {
            each.node.node_id: Member(each.node, STATES[each.state], each.node.node_id in links)
            for each in self._core.members
        }

    def member(self, node_id: str) -> Member | None:
        known = self._core.members.get(node_id)
        return None if known is None else Member(known.node, STATES[known.state], node_id in self._core.links)

    def state(self) -> dict[str, Entry]:
        """The keys that are shown, by key."""
        state = self._core.state
        return {entry.key: entry for entry in state if state.is_shown(entry)}

    def refuses(self, node: NodeInfo) -> NodeInfo | None:
        """Who holds the name of a node that wants to link: this node, or a member that lives and has a link."""
        core = self._core
        if node.node_id == core.me.node_id:
            return None if node.run_id == core.me.run_id else core.me
        known = core.members.get(node.node_id)
        is_held = known is not None and known.state == ALIVE and node.node_id in core.links
        return known.node if known is not None and is_held and known.node.run_id != node.run_id else None

    def step(self, now: float, event: events.Event) -> list[Effect]:
        core = self._core
        core.now = max(core.now, now)
        if not self._started:
            self._start()
        self._notice_pause()
        if not core.leaving:
            self._take(event)
            self._run_timers()
        effects, core.out = core.out, []
        self._wake_at = min(core.timers.next_at(), core.now + NOTHING_DUE_S)
        effects.append(WakeAt(self._wake_at))
        return effects

    def _start(self) -> None:
        """Nodes that start together spread their rounds over the intervals."""
        core, settings = self._core, self._core.settings
        self._started = True
        for name, interval in (
            ("probe", settings.probe_interval_s),
            ("heartbeat", settings.heartbeat_interval_s),
            ("anti_entropy", settings.anti_entropy_interval_s),
            ("housekeeping", HOUSEKEEPING_S),
        ):
            core.timers.set((name, ""), core.now + interval * core.random.random())
        for record in core.members:
            core.effect(NodeChanged(record.node, "alive"))
            core.timers.set(("dial", record.node.node_id), core.now + settings.redial_s * core.random.random())

    def _notice_pause(self) -> None:
        """A process that was stopped, or a loop that was blocked, has missed answers that may be waiting: what was due
        meanwhile is put off, and nobody is blamed."""
        core = self._core
        late = core.now - self._wake_at
        if late > core.settings.probe_timeout_s:
            core.timers.shift(late)
            core.awareness.worsen()
            self._prober.forget_all()

    def _take(self, event: events.Event) -> None:
        core = self._core
        match event:
            case events.Tick():
                pass
            case events.Received(from_node, message):
                self._receive(from_node, message)
            case events.Linked(node):
                if fault_of_node(node, core.me.cluster_id) is None and node.node_id != core.me.node_id:
                    is_alone = not core.members.live
                    if self._membership.linked(node):
                        self._anti_entropy.soon(node.node_id, at_once=is_alone)
                    self._dialling.reset(node.node_id)
            case events.Unlinked(node_id):
                self._membership.unlinked(node_id)
                self._prober.urgent(node_id)
            case events.Farewell(node_id):
                self._membership.farewell(node_id)
            case events.Put(key, value, ttl_s):
                self._keys.put(key, value, ttl_s)
            case events.Withdraw(key):
                self._keys.withdraw(key)
            case events.Describe(urls, meta):
                self._describe(urls, meta)
            case events.Health(health):
                core.health = health
            case events.Spread(payload):
                self._spreading.start(payload)
            case events.Propose(proposal_id, key, value):
                self._ballots.propose(proposal_id, key, value)
            case events.Leave():
                self._membership.leave()

    def _receive(self, from_node: str, message: Gossip) -> None:
        core = self._core
        if from_node not in core.links:
            core.intake.drop("not_linked")
            return
        payload = core.intake.open(message, from_node, core.wall)
        if payload is None:
            return
        core.clock.observe(message.vector_clock, core.members)
        if isinstance(payload, MembershipProbe | MembershipAck | Rumor):
            self._hear(payload.updates, from_node)
        match payload:
            case MembershipProbe():
                self._prober.asked(payload, from_node, message.u)
            case MembershipAck():
                self._prober.answered(payload, from_node, message.u)
            case MembershipUpdate():
                self._membership.hear(payload, from_node)
            case StateUpdate():
                self._keys.hear(payload, from_node)
            case Heartbeat():
                core.effect(HealthHeard(from_node, payload.health))
            case AntiEntropy():
                self._anti_entropy.heard(payload, from_node)
            case ConsensusProposal():
                self._ballots.asked(payload, from_node)
            case ConsensusVote():
                self._ballots.voted(payload, from_node)
            case Rumor(name=name):
                if name:
                    self._spreading.heard(message)
            case CacheUpdate():
                self._spreading.heard(message)
        self._membership.tell_suspect(from_node)

    def _hear(self, updates: Updates, from_node: str) -> None:
        for member in updates.members:
            self._membership.hear(member, from_node)
        for update in updates.state:
            self._keys.hear(update, from_node)

    def _describe(self, urls: tuple[str, ...] | None, meta: dict[str, str] | None) -> None:
        core = self._core
        node = msgspec.structs.replace(
            core.me,
            advertised_urls=core.me.advertised_urls if urls is None else urls,
            meta=core.me.meta if meta is None else meta,
        )
        if fault_of_node(node, core.me.cluster_id) is not None:
            raise ClusterError("CLUSTER_INVALID_NODE", "A node has too many or too long addresses or meta")
        if node != core.me:
            self._membership.change_me(node)

    def _run_timers(self) -> None:
        core = self._core
        if len(core.broadcasts) and ("gossip", "") not in core.timers:
            core.timers.set(("gossip", ""), core.now + core.settings.gossip_interval_s * core.random.random())
        for kind, name in core.timers.due(core.now):
            match kind:
                case "gossip":
                    self._gossip()
                case "probe":
                    self._prober.next_round()
                case "unanswered":
                    self._prober.unanswered(name)
                case "probe_ends":
                    self._prober.ends(name)
                case "help":
                    self._prober.help_ends(name)
                case "suspect":
                    self._membership.suspicion_ends(name)
                case "heartbeat":
                    self._heartbeat()
                case "anti_entropy":
                    self._anti_entropy.next_round()
                case "dial":
                    self._dialling.due(name)
                case "ask_again":
                    self._ballots.ask_again(name)
                case "vote_ends":
                    self._ballots.ends(name)
                case "housekeeping":
                    self._keep_house()

    def _gossip(self) -> None:
        """What is new, to a few. One piece of news goes as what it is, several as a rumor."""
        core = self._core
        for node_id in core.draw(core.settings.gossip_nodes):
            updates = core.take_news()
            if len(updates.members) + len(updates.state) > 1:
                core.send(node_id, "rumor", Rumor(updates=updates))
            elif updates.members:
                core.send(node_id, "membership_update", updates.members[0])
            elif updates.state:
                is_config = updates.state[0].key.startswith(CONFIG_PREFIX)
                core.send(node_id, "config_update" if is_config else "state_update", updates.state[0])
        if len(core.broadcasts):
            core.timers.set(("gossip", ""), core.now + core.settings.gossip_interval_s)

    def _heartbeat(self) -> None:
        core = self._core
        core.timers.set(("heartbeat", ""), core.now + core.settings.heartbeat_interval_s)
        for node_id in core.draw(1):
            core.send(node_id, "heartbeat", Heartbeat(health=core.my_health()))

    def _keep_house(self) -> None:
        core = self._core
        core.timers.set(("housekeeping", ""), core.now + HOUSEKEEPING_S)
        for node_id in core.members.gone_before(core.wall - core.settings.dead_forget_s):
            self._membership.forget(node_id)
            self._dialling.reset(node_id)
        self._keys.expire()

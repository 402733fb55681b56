"""Finding out who is there: one member after the other is asked, in an order that is shuffled anew each time round, so
that everyone is asked within a bounded time. Who does not answer is asked through others; who does not answer them
either is suspected.

The timeouts are stretched by this node's own health. Others who were asked to help and can't reach the target say
that at least they are well; a helper that says nothing makes this node doubt itself (Lifeguard).
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from mpreg.cluster.core import Core
from mpreg.cluster.effects import HealthHeard
from mpreg.cluster.membership import Membership
from mpreg.wire.gossip import MembershipAck, MembershipProbe

AT_ONCE_MAX: Final = 8
"""Probes under way beside the regular one: of members whose link has just broken."""
HELPING_MAX: Final = 256
"""Probes that this node makes for others at a time."""


class _Probe(msgspec.Struct):
    target: str
    helpers: int = 0
    nacks: int = 0


class _Help(msgspec.Struct, frozen=True):
    requester: str
    u: str
    target: str


class Prober:
    def __init__(self, core: Core, membership: Membership) -> None:
        self._core = core
        self._membership = membership
        self._round: list[str] = []
        self._probes: dict[str, _Probe] = {}
        self._helping: dict[str, _Help] = {}
        self._number = 0

    def next_round(self) -> None:
        core = self._core
        core.timers.set(("probe", ""), core.now + core.awareness.stretch(core.settings.probe_interval_s))
        target = self._next_target()
        if target is not None:
            self._start(target)

    def urgent(self, node_id: str) -> None:
        """Its link has just broken: don't wait for its turn."""
        if node_id in self._core.members.live and len(self._probes) < AT_ONCE_MAX:
            self._start(node_id)

    def unanswered(self, u: str) -> None:
        """The target did not answer in time: ask others to ask it."""
        core = self._core
        probe = self._probes.get(u)
        known = core.members.get(probe.target) if probe is not None else None
        if probe is None or known is None:
            return
        helpers = core.draw(core.settings.indirect_probes, (probe.target,))
        probe.helpers = len(helpers)
        for helper in helpers:
            core.send(
                helper,
                "membership_probe",
                MembershipProbe(target=probe.target, run_id=known.node.run_id, updates=core.take_news()),
                u,
            )

    def ends(self, u: str) -> None:
        """Nobody has reached the target."""
        core = self._core
        probe = self._probes.pop(u, None)
        if probe is None or probe.target not in core.members.live:
            return
        core.awareness.worsen(probe.helpers - probe.nacks if probe.helpers else 1)
        self._membership.suspect(probe.target)

    def help_ends(self, u: str) -> None:
        help_ = self._helping.pop(u, None)
        if help_ is not None:
            self._answer(help_, reached=False)

    def asked(self, probe: MembershipProbe, from_node: str, u: str | UnsetType) -> None:
        core = self._core
        if u is UNSET or from_node not in core.links:
            return
        if probe.target != core.me.node_id:
            self._help(probe, from_node, u)
        elif probe.run_id is None or probe.run_id == core.me.run_id:
            ack = MembershipAck(
                target=core.me.node_id,
                health=core.my_health(),
                updates=core.take_news(self._membership.held_against(from_node)),
            )
            core.send(from_node, "membership_ack", ack, u)
        # Else a former run of this node is meant, which does not live.

    def answered(self, ack: MembershipAck, from_node: str, u: str | UnsetType) -> None:
        core = self._core
        if u is UNSET:
            return
        if ack.reached and ack.target == from_node:
            core.effect(HealthHeard(from_node, ack.health))
        help_ = self._helping.get(u)
        if help_ is not None and ack.reached and from_node == help_.target:
            del self._helping[u]
            core.timers.cancel(("help", u))
            self._answer(help_, reached=True)
            return
        probe = self._probes.get(u)
        if probe is None or ack.target != probe.target:
            return
        if not ack.reached:
            probe.nacks += 1
        else:
            del self._probes[u]
            core.timers.cancel(("unanswered", u))
            core.timers.cancel(("probe_ends", u))
            core.awareness.improve()

    def forget_all(self) -> None:
        """This node was not running for a while: what was under way says nothing about others."""
        for u in self._probes:
            self._core.timers.cancel(("unanswered", u))
            self._core.timers.cancel(("probe_ends", u))
        self._probes.clear()

    def _start(self, target: str) -> None:
        core = self._core
        known = core.members.get(target)
        if known is None or any(probe.target == target for probe in self._probes.values()):
            return
        self._number += 1
        u = f"probe-{core.me.node_id}-{core.me.run_id}-{self._number}"
        self._probes[u] = _Probe(target)
        core.timers.set(("probe_ends", u), core.now + core.awareness.stretch(core.settings.probe_interval_s))
        if target not in core.links:
            self.unanswered(u)
            return
        core.timers.set(("unanswered", u), core.now + core.awareness.stretch(core.settings.probe_timeout_s))
        updates = core.take_news(self._membership.held_against(target))
        probe = MembershipProbe(target=target, run_id=known.node.run_id, updates=updates)
        core.send(target, "membership_probe", probe, u)

    def _next_target(self) -> str | None:
        core = self._core
        for _ in range(2):
            while self._round:
                target = self._round.pop()
                if target in core.members.live:
                    return target
            self._round = list(core.members.live)
            core.random.shuffle(self._round)
        return None

    def _help(self, probe: MembershipProbe, from_node: str, u: str) -> None:
        core = self._core
        help_ = _Help(from_node, u, probe.target)
        if probe.target not in core.links or len(self._helping) >= HELPING_MAX:
            self._answer(help_, reached=False)
            return
        self._number += 1
        own_u = f"help-{core.me.node_id}-{core.me.run_id}-{self._number}"
        self._helping[own_u] = help_
        core.timers.set(("help", own_u), core.now + core.settings.probe_timeout_s)
        core.send(probe.target, "membership_probe", MembershipProbe(target=probe.target, run_id=probe.run_id), own_u)

    def _answer(self, help_: _Help, *, reached: bool) -> None:
        core = self._core
        if help_.requester in core.links:
            ack = MembershipAck(target=help_.target, reached=reached, updates=core.take_news())
            core.send(help_.requester, "membership_ack", ack, help_.u)

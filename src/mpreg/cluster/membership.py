"""Who is there (R-G2): links, what nodes say of each other, suspicion, and this node's answer to what is said of it.

Every change is told on as news. Effects keep the contract of `NodeChanged` and `StateChanged`: a run of a node is
alive first, dead or left once, and its keys are shown exactly while it lives.
"""

from __future__ import annotations

import math

import msgspec

from mpreg.cluster import timing
from mpreg.cluster.core import Core
from mpreg.cluster.effects import NodeChanged, StateChanged
from mpreg.cluster.intake import fault_of_node, is_node_id
from mpreg.cluster.namesakes import Namesakes
from mpreg.cluster.record import (
    ALIVE,
    DEAD,
    INCARNATION_MAX,
    LEFT,
    STATES,
    SUSPECT,
    Record,
    from_update,
    same_run,
    to_update,
)
from mpreg.cluster.suspicion import Suspicion
from mpreg.wire.gossip import MembershipUpdate, NodeInfo


class Membership:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._suspicions: dict[str, Suspicion] = {}
        self._namesakes = Namesakes(core)
        self._told: dict[str, float] = {}
        """When a node was last told what is held against it."""

    def hear(self, update: MembershipUpdate, from_node: str) -> None:
        """What another node says of a member, or of this node."""
        core = self._core
        record = from_update(update)
        known = core.members.get(update.node.node_id)
        if known is not None and record.state != SUSPECT and record.rank <= known.rank:
            return  # most of what a node hears it has heard before
        fault = fault_of_node(update.node, core.me.cluster_id)
        if fault is None and not (math.isfinite(update.timestamp) and is_node_id(update.source_node)):
            fault = "node"
        if fault is not None:
            core.intake.drop(fault)
            return
        if update.node.node_id == core.me.node_id:
            self._about_me(record, from_node)
        else:
            self._merge(record)

    def linked(self, node: NodeInfo) -> bool:
        """Whether the two should compare their states now: this node knew nobody, or held the other one for dead."""
        core = self._core
        node_id = node.node_id
        known = core.members.get(node_id)
        is_new_start = len(core.members.live) == 0 or (known is not None and not known.is_live)
        core.links[node_id] = node.run_id
        core.timers.cancel(("dial", node_id))
        self._merge(Record(node, ALIVE, node_id, core.wall))
        now_known = core.members.get(node_id)
        if now_known is not None and now_known.is_live:
            core.reach.add(node_id)
        self.tell_suspect(node_id)
        return is_new_start

    def unlinked(self, node_id: str) -> None:
        core = self._core
        if core.links.pop(node_id, None) is not None:
            core.reach.discard(node_id)
            self._want_link(node_id)

    def farewell(self, node_id: str) -> None:
        """A node said over its own link that it leaves."""
        core = self._core
        known = core.members.get(node_id)
        if known is not None and core.links.get(node_id) == known.node.run_id:
            self._merge(Record(known.node, LEFT, node_id, core.wall))

    def suspect(self, node_id: str) -> None:
        """This node could not reach it, nor could others."""
        core = self._core
        known = core.members.get(node_id)
        if known is None or not known.is_live:
            return
        if known.state == SUSPECT:
            self._confirm(known, core.me.node_id)
        else:
            self._merge(Record(known.node, SUSPECT, core.me.node_id, core.wall))

    def suspicion_ends(self, node_id: str) -> None:
        core = self._core
        known = core.members.get(node_id)
        if known is not None and known.state == SUSPECT:
            self._merge(Record(known.node, DEAD, core.me.node_id, core.wall))

    def change_me(self, node: NodeInfo) -> None:
        """New addresses or meta: as any change of one's own info, with a higher incarnation."""
        core = self._core
        core.become(msgspec.structs.replace(node, incarnation=core.me.incarnation + 1))
        core.broadcasts.add(to_update(core.my_record()))

    def leave(self) -> None:
        core = self._core
        core.leaving = True
        core.become(core.me)
        update = to_update(core.my_record())
        for node_id in list(core.links):
            core.send(node_id, "membership_update", update)
        core.timers.clear()

    def tell_suspect(self, node_id: str) -> None:
        """A node that is heard from although it is held for suspect, dead or another run is told so, so that it can
        contradict; not with every message that it sends."""
        core = self._core
        if node_id not in core.links:
            return
        if core.now - self._told.get(node_id, -math.inf) < core.settings.gossip_interval_s:
            return
        update = self.held_against(node_id)
        if update is not None:
            core.send(node_id, "membership_update", update)

    def held_against(self, node_id: str) -> MembershipUpdate | None:
        """What to tell the node itself, if this node does not simply hold it for alive."""
        known = self._core.members.get(node_id)
        if known is None:
            return None
        run = self._core.links.get(node_id)
        is_fine = known.state == ALIVE and (run is None or run == known.node.run_id)
        if is_fine or (known.state == LEFT and run == known.node.run_id):
            return None
        self._told[node_id] = self._core.now
        return to_update(known)

    def forget(self, node_id: str) -> None:
        """Gone so long ago that nobody speaks of it any more."""
        core = self._core
        core.members.forget(node_id)
        core.state.forget_owner(node_id)
        core.clock.forget(node_id)
        core.timers.cancel(("dial", node_id))
        self._told.pop(node_id, None)

    def _merge(self, record: Record) -> None:
        core = self._core
        members = core.members
        node_id = record.node.node_id
        known = members.get(node_id)
        if known is not None and record.rank <= known.rank:
            if record.state == SUSPECT and record.rank == known.rank:
                self._confirm(known, record.source)
            return
        if not record.is_live and record.at < core.wall - core.settings.dead_forget_s:
            return
        if not members.has_room(node_id):
            core.intake.drop("full")
            return
        if record.at > core.wall:
            record = msgspec.structs.replace(record, at=core.wall)
        forgotten = members.set(record)
        if forgotten is not None:
            self.forget(forgotten)
        core.broadcasts.add(to_update(record))
        self._show(known, record)
        self._follow(record)

    def _show(self, known: Record | None, record: Record) -> None:
        """Tell the shell, in the order that it was promised."""
        core = self._core
        node = record.node
        was_live = known is not None and known.is_live
        if known is not None and not same_run(known.node, node):
            if was_live:
                self._show_end(known.node, DEAD)
                was_live = False
            core.state.doubt_owner(node.node_id)
        if not record.is_live:
            if was_live:
                self._show_end(node, record.state)
            return
        if not was_live:
            core.state.count_owner(node.node_id)
        if not was_live or record.state == ALIVE:
            core.effect(NodeChanged(node, STATES[ALIVE]))
        if not was_live:
            for entry in core.state.shown_of(node.node_id):
                core.effect(StateChanged(entry.key, entry.value, entry.source, entry.version))
        if record.state == SUSPECT:
            core.effect(NodeChanged(node, STATES[SUSPECT]))

    def _show_end(self, node: NodeInfo, state: int) -> None:
        core = self._core
        shown = core.state.shown_of(node.node_id)
        core.state.discount_owner(node.node_id)
        core.effect(NodeChanged(node, STATES[state]))
        for entry in shown:
            core.effect(StateChanged(entry.key, None, entry.source, entry.version))

    def _follow(self, record: Record) -> None:
        """Timers and rosters that go with the state of a member."""
        core = self._core
        node_id = record.node.node_id
        self._suspicions.pop(node_id, None)
        core.timers.cancel(("suspect", node_id))
        if record.state == SUSPECT:
            suspicion = self._suspicions[node_id] = Suspicion(
                core.now,
                record.source,
                timing.confirmations_wanted(core.settings, core.nodes),
                timing.suspicion_min_s(core.settings, core.nodes),
                timing.suspicion_max_s(core.settings, core.nodes),
            )
            core.timers.set(("suspect", node_id), suspicion.ends_at)
        if record.is_live and node_id in core.links:
            core.reach.add(node_id)
        elif not record.is_live:
            core.reach.discard(node_id)
        self._want_link(node_id)

    def _confirm(self, known: Record, accuser: str) -> None:
        core = self._core
        suspicion = self._suspicions.get(known.node.node_id)
        if suspicion is not None and suspicion.confirm(accuser):
            core.timers.set(("suspect", known.node.node_id), suspicion.ends_at)
            told = Record(known.node, SUSPECT, accuser, known.at)
            core.broadcasts.add(to_update(told))

    def _want_link(self, node_id: str) -> None:
        """Every member should have a link; of two that want one, the one whose id is lower dials first. Those that
        left are not wanted; the dead are knocked at now and then, in case they live behind a healed partition."""
        core = self._core
        known = core.members.get(node_id)
        key = ("dial", node_id)
        if known is None or known.state == LEFT:
            core.timers.cancel(key)
        elif not known.is_live:
            core.timers.set_earlier(key, core.now + core.settings.redial_max_s * (0.5 + core.random.random() / 2))
        elif node_id not in core.links:
            is_first = core.me.node_id < node_id
            core.timers.set_earlier(key, core.now if is_first else core.now + core.settings.redial_s)

    def _about_me(self, record: Record, from_node: str) -> None:
        """A suspicion of this node, or a record of a former run of it, is answered with a higher incarnation."""
        core = self._core
        mine = core.my_record()
        if core.leaving or record.node.incarnation >= INCARNATION_MAX:
            return
        if record.rank <= mine.rank:
            if not record.is_live or record.state == SUSPECT or not same_run(record.node, core.me):
                self._repeat(from_node)
            return
        if same_run(record.node, core.me):
            if record.state in (SUSPECT, DEAD):
                core.awareness.worsen()
        elif not self._namesakes.may_contest(record):
            return
        core.become(msgspec.structs.replace(core.me, incarnation=record.node.incarnation + 1))
        self._namesakes.outbid(record.node, core.me.incarnation)
        core.broadcasts.add(to_update(core.my_record()))
        self._repeat(from_node)

    def _repeat(self, node_id: str) -> None:
        """To one who holds against this node what it has contradicted: the answer must have got lost."""
        core = self._core
        if node_id in core.links:
            core.send(node_id, "membership_update", to_update(core.my_record()))

"""What a node of a cluster does, as a pure machine: `step(now, event) -> effects`. No clock, no socket, no chance in it
but what is handed in.

`now` are the seconds of a clock that never goes back; `epoch` is what the wall clock showed when that one was at 0.
"""

from __future__ import annotations

import random as random_module

import msgspec

from mpreg.cluster.effects import Effect, NodeChanged, NodeState, WakeAt
from mpreg.cluster.events import Event, Farewell, Linked, Unlinked
from mpreg.cluster.settings import LAN, ClusterSettings
from mpreg.wire.gossip import NodeInfo


class Member(msgspec.Struct, frozen=True):
    """What this node thinks of another one."""

    node: NodeInfo
    state: NodeState
    linked: bool


class Machine:
    def __init__(
        self,
        me: NodeInfo,
        settings: ClusterSettings = LAN,
        random: random_module.Random | None = None,
        epoch: float = 0.0,
    ) -> None:
        self.me = me
        self.settings = settings
        self._random = random or random_module.Random(me.run_id)
        self._epoch = epoch
        self._members: dict[str, Member] = {}

    def members(self) -> dict[str, Member]:
        """Every other node that is known, by its id."""
        return dict(self._members)

    def step(self, now: float, event: Event) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case Linked(node):
                self._change(effects, node, "alive", True)
            case Unlinked(node_id):
                if node_id in self._members and self._members[node_id].state == "alive":
                    self._change(effects, self._members[node_id].node, "dead", False)
            case Farewell(node_id):
                if node_id in self._members:
                    self._change(effects, self._members[node_id].node, "left", False)
            case _:
                pass
        effects.append(WakeAt(now + self.settings.probe_interval_s))
        return effects

    def _change(self, effects: list[Effect], node: NodeInfo, state: NodeState, linked: bool) -> None:
        self._members[node.node_id] = Member(node, state, linked)
        effects.append(NodeChanged(node, state))

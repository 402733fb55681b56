"""What is said of a node, and which of two sayings counts. Pure.

Sayings are ordered by incarnation, then by the run of the node (the one that started later), then by state: at the
same incarnation and run, left > dead > suspect > alive. The higher one counts, whichever came first, so it does not
matter in which order nodes hear of them, how often, or by whom. Only the node itself raises its incarnation: that is
how it contradicts a suspicion.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mpreg.cluster.effects import NodeState
from mpreg.wire.gossip import EventType, MembershipUpdate, NodeInfo

ALIVE: Final = 0
SUSPECT: Final = 1
DEAD: Final = 2
LEFT: Final = 3
STATES: Final[tuple[NodeState, ...]] = ("alive", "suspect", "dead", "left")
_RANKS: Final[dict[EventType, int]] = {"join": ALIVE, "update": ALIVE, "suspect": SUSPECT, "dead": DEAD, "leave": LEFT}
_EVENTS: Final[tuple[EventType, ...]] = ("update", "suspect", "dead", "leave")

INCARNATION_MAX: Final = 2**53 - 1

Rank = tuple[int, float, str, int]


class Record(msgspec.Struct, frozen=True, gc=False):
    node: NodeInfo
    state: int
    source: str
    """Who said so first, as far as this node knows."""
    at: float
    """When it was said, in seconds since 1970."""

    @property
    def rank(self) -> Rank:
        node = self.node
        return (node.incarnation, node.started, node.run_id, self.state)

    @property
    def is_live(self) -> bool:
        return self.state <= SUSPECT


def same_run(a: NodeInfo, b: NodeInfo) -> bool:
    return a.run_id == b.run_id and a.started == b.started


def from_update(update: MembershipUpdate) -> Record:
    return Record(update.node, _RANKS[update.event_type], update.source_node, update.timestamp)


def to_update(record: Record) -> MembershipUpdate:
    is_first = record.state == ALIVE and record.node.incarnation == 0
    return MembershipUpdate(
        event_type="join" if is_first else _EVENTS[record.state],
        node=record.node,
        source_node=record.source,
        timestamp=record.at,
    )

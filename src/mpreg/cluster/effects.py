"""What a node of a cluster has to do or to know next: everything that `Machine.step` returns, in the order in which it
happened; a `WakeAt` is always the last."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Raw

from mpreg.wire.gossip import Gossip, NodeHealth, NodeInfo

NodeState = Literal["alive", "suspect", "dead", "left"]
Outcome = Literal["accepted", "rejected", "expired"]


class Send(msgspec.Struct, frozen=True):
    """Over the link to this node, if it is still there; else drop it."""

    node_id: str
    message: Gossip


class NodeChanged(msgspec.Struct, frozen=True):
    """For one run of a node: alive, then any number of suspect and alive, then dead or left, once. A dead one may come
    back to life. A run that takes the place of another is told after that one's death. Also `alive` again when a node
    changes its addresses or meta. Never told of this node itself."""

    node: NodeInfo
    state: NodeState


class StateChanged(msgspec.Struct, frozen=True):
    """`value` is MessagePack; None: the key was withdrawn, has run out, or its owner is forgotten. Own changes too."""

    key: str
    value: Raw | None
    source_node: str
    version: int


class HealthHeard(msgspec.Struct, frozen=True):
    node_id: str
    health: NodeHealth


class Heard(msgspec.Struct, frozen=True):
    """A rumor with a name, or a `cache_update`, the first time that it came. Not told to the node that spread it."""

    message: Gossip


class Decided(msgspec.Struct, frozen=True):
    """A proposal of this node has ended. An accepted value is also a `StateChanged`, on every node."""

    proposal_id: str
    key: str
    value: Any
    outcome: Outcome
    reason: str = ""


class Dial(msgspec.Struct, frozen=True):
    """There should be a link to this member. It is asked for again, ever more rarely, as long as there is none."""

    node_id: str
    urls: tuple[str, ...]


class NameTaken(msgspec.Struct, frozen=True):
    """Another living node has this node's name, and had it before: this node has to stop."""

    holder: NodeInfo


class WakeAt(msgspec.Struct, frozen=True):
    """Call `step` with a `Tick` at this time of the machine's clock, unless another event makes it later or earlier."""

    at: float


Effect = Send | NodeChanged | StateChanged | HealthHeard | Heard | Decided | Dial | NameTaken | WakeAt

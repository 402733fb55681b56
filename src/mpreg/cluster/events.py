"""What happens to a node of a cluster: everything that `Machine.step` is told."""

from __future__ import annotations

from typing import Any

import msgspec

from mpreg.wire.gossip import CacheUpdate, Gossip, NodeHealth, NodeInfo, Rumor


class Tick(msgspec.Struct, frozen=True):
    """The time that the last `WakeAt` named has come."""


class Received(msgspec.Struct, frozen=True):
    """A message, its payload in MessagePack. `from_node` is what the link has proved, not what the message says."""

    from_node: str
    message: Gossip


class Linked(msgspec.Struct, frozen=True):
    """There is a link to this node, whichever side opened it; it has proved to be who it says (R-G4)."""

    node: NodeInfo


class Unlinked(msgspec.Struct, frozen=True):
    """The link to this node is gone, and there is no other one."""

    node_id: str
    reason: str = ""


class Farewell(msgspec.Struct, frozen=True):
    """GOODBYE came over this node's own link."""

    node_id: str


class Put(msgspec.Struct, frozen=True):
    """Set a key of the shared state. `value` is plain data. Raises `ClusterError` if key or value is over its limit."""

    key: str
    value: Any
    ttl_s: float | None = None


class Withdraw(msgspec.Struct, frozen=True):
    """Remove a key of the shared state."""

    key: str


class Describe(msgspec.Struct, frozen=True):
    """This node's addresses or meta have changed."""

    advertised_urls: tuple[str, ...] | None = None
    meta: dict[str, str] | None = None


class Health(msgspec.Struct, frozen=True):
    """How this node is doing; told to others by the way. `awareness` is the machine's own."""

    health: NodeHealth


class Spread(msgspec.Struct, frozen=True):
    """Tell every node once, through others where there is no link. Not kept: who is away misses it."""

    payload: Rumor | CacheUpdate


class Propose(msgspec.Struct, frozen=True):
    """Ask the members whether `key` shall become `value`; `Decided` follows."""

    proposal_id: str
    key: str
    value: Any


class Leave(msgspec.Struct, frozen=True):
    """This node leaves in good order. What `step` returns is to be sent, then the links are closed."""


Event = Tick | Received | Linked | Unlinked | Farewell | Put | Withdraw | Describe | Health | Spread | Propose | Leave

"""A node introduces itself to another node, and takes its leave (R-G4).

A link between nodes begins with two HELLOs each way: the first says who one is, the second proves it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mpreg.wire.message import WhatMessage

NodeId = Annotated[str, Meta(min_length=1, max_length=128)]
Nonce = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Offer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A function that declares resources, or may be run twice (R-R4, R-R5)."""

    name: str
    locs: tuple[str, ...] = ()
    idempotent: bool = False


class Hello(WhatMessage, frozen=True, tag="HELLO"):
    """Who this node is; in the second one also what it has and where it can be reached.

    Said once more on an open link, it tells of functions that have come or gone.
    """

    funs: tuple[str, ...]
    locs: tuple[str, ...]
    cluster_id: str
    advertised_urls: tuple[str, ...] = ()
    node_id: NodeId | UnsetType = UNSET
    run: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    """Of this run of the node; a restart is another one."""
    nonce: Nonce | UnsetType = UNSET
    """In the first HELLO: 32 random bytes, in hexadecimal."""
    proof: Nonce | UnsetType = UNSET
    """In the second HELLO: that the sender knows the cluster's secret (`docs/cluster.md` says how it is made)."""
    offers: tuple[Offer, ...] = ()
    """Those of `funs` of which there is more to say than the name."""
    check: bool = False
    """The sender only wants to know whether it would be let in: the proof is answered by `CLUSTER_CHECKED`."""
    timestamp: float | UnsetType = UNSET
    started: float | UnsetType = UNSET
    """Seconds since 1970 at which this run of the node began; in the second HELLO, like `incarnation` and `meta`."""
    incarnation: int | UnsetType = UNSET
    meta: dict[str, str] | UnsetType = UNSET


class Goodbye(WhatMessage, frozen=True, tag="GOODBYE"):
    """The sender leaves in good order; nothing new is sent to it."""

    node_id: str | UnsetType = UNSET

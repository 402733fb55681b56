"""A node introduces itself to another node, and takes its leave (R-G4)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from mpreg.wire.message import WhatMessage


class Hello(WhatMessage, frozen=True, tag="HELLO"):
    """What this node has and where it can be reached."""

    funs: tuple[str, ...]
    locs: tuple[str, ...]
    cluster_id: str
    advertised_urls: tuple[str, ...] = ()
    node_id: str | UnsetType = UNSET


class Goodbye(WhatMessage, frozen=True, tag="GOODBYE"):
    """The sender leaves in good order; nothing new is sent to it."""

    node_id: str | UnsetType = UNSET

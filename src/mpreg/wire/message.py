"""The three families of envelopes (R-W1): a message is told by its `role`, its `type` or its `what`.

An area of the protocol declares its messages as subclasses, in a file of its own; `codec` collects them. Fields that a
sender may leave out have the default `UNSET`, and are left out again when encoded.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

VERSION = "2.0"
MAJOR = 2


class RoleMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="role", tag=""):
    """`{"role": …, "u": …, …}`: everything but queues and the life of a node."""

    timestamp: float | UnsetType = UNSET
    version: str | UnsetType = UNSET


class TypeMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type", tag=""):
    """`{"type": …, "payload": {…}}`: queues. `u` stands beside `payload`."""

    u: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    sender_id: str | UnsetType = UNSET
    timestamp: float | UnsetType = UNSET


class WhatMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="what", tag=""):
    """`{"what": …}`: a node introduces itself and takes its leave."""

    u: str | UnsetType = UNSET
    version: str | UnsetType = UNSET


Message = RoleMessage | TypeMessage | WhatMessage


def is_supported(version: str | UnsetType) -> bool:
    """R-W1: an absent version means "2.0"; only the major version counts."""
    return version is UNSET or version.partition(".")[0] == str(MAJOR)


def u_of(message: Message) -> str | None:
    """The correlation id, if the message carries one."""
    u: Any = getattr(message, "u", None)
    return u if isinstance(u, str) else None

"""Messages of RPC. Arguments and results stay raw bytes, in the encoding of their message, until the type is known."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mpreg.wire.error import ErrorBody
from mpreg.wire.message import RoleMessage


class Command(msgspec.Struct, frozen=True, gc=False):
    """One call inside a request. `name` is how other commands of the request refer to its result (R-R2)."""

    name: str
    fun: str
    args: Raw | UnsetType = UNSET
    kwargs: Raw | UnsetType = UNSET
    locs: tuple[str, ...] = ()


class Rpc(RoleMessage, frozen=True, tag="rpc"):
    """A request: one command, or several that may use each other's results."""

    u: str
    cmds: tuple[Command, ...]
    timeout_ms: float | UnsetType = UNSET
    """Covers the request as a whole (R-R7); 30,000 if absent."""
    intermediate: bool = False
    """Answer with the results of all commands, not of the final ones only (R-R1)."""


class RpcResponse(RoleMessage, frozen=True, tag="rpc-response"):
    """`error` is null on success; `r` is null on failure."""

    u: str
    r: Raw
    error: ErrorBody | None = None


class RpcCancel(RoleMessage, frozen=True, tag="rpc-cancel"):
    """Stop the request `u` of this connection; it is answered with `RPC_CANCELLED` if it still ran (R-R7)."""

    u: str


class InternalRpc(RoleMessage, frozen=True, tag="internal-rpc"):
    """One command, sent by the node that a client asked to the node that has the function."""

    u: str
    command: str
    args: Raw | UnsetType = UNSET
    kwargs: Raw | UnsetType = UNSET
    results: dict[str, Any] | UnsetType = UNSET
    """Results of earlier commands of the request that the arguments refer to."""
    locs: tuple[str, ...] = ()
    timeout_ms: float | UnsetType = UNSET
    """What is left of the request's time."""
    name: str | UnsetType = UNSET
    """Of the command in its request, if its arguments refer to `results`."""


class InternalAnswer(RoleMessage, frozen=True, tag="internal-answer"):
    u: str
    r: Raw
    error: ErrorBody | None = None
    started: bool | UnsetType = UNSET
    """False: the command was refused before it began, so another node may have it (R-R5)."""

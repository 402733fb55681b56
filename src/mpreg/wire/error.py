"""Errors on the wire (R-W7): `error-response` answers all that is not an RPC; an RPC carries its error inside."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from mpreg import errors
from mpreg.errors import MpregError
from mpreg.wire.message import RoleMessage


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong. `type` is a class name: of MPREG, or of what a function raised."""

    type: str
    code: str = ""
    message: str
    details: dict[str, Any] | UnsetType = UNSET
    retryable: bool | UnsetType = UNSET
    state_changed: bool | UnsetType | None = UNSET
    """Whether the request had an effect; null or absent if nobody can know."""
    command: str | UnsetType = UNSET
    """The command of an RPC request that failed (R-R3)."""
    traceback: str | UnsetType = UNSET
    """Only from a node that runs with `debug = true`."""
    timestamp: float | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class ErrorResponse(RoleMessage, frozen=True, tag="error-response"):
    error: ErrorBody
    u: str | UnsetType = UNSET


def error_body(error: MpregError, command: str | None = None) -> ErrorBody:
    return ErrorBody(
        type=error.type,
        code=error.code,
        message=error.message,
        details=error.details or UNSET,
        retryable=error.retryable,
        state_changed=error.state_changed,
        command=UNSET if command is None else command,
        traceback=UNSET if error.traceback is None else error.traceback,
    )


def error_response(error: MpregError, u: str | None) -> ErrorResponse:
    body = msgspec.structs.replace(error_body(error), timestamp=time.time(), request_id=UNSET if u is None else u)
    return ErrorResponse(error=body, u=UNSET if u is None else u)


def to_exception(body: ErrorBody) -> MpregError:
    """The exception for an error that a peer sent."""
    details = {} if body.details is UNSET else dict(body.details)
    if body.command is not UNSET:
        details["command"] = body.command
    error = errors.from_wire(body.code, body.message, type=body.type, details=details)
    if body.traceback is not UNSET:
        error.traceback = body.traceback
    if body.retryable is not UNSET:
        error.retryable = body.retryable
    error.state_changed = None if body.state_changed is UNSET else body.state_changed
    return error

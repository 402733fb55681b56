"""Answers requests: each gets exactly one reply, in whatever way it ends, and nothing is left of it afterwards.

Requests of one connection run side by side (R-W6). A request ends by its result, its error, its deadline, an
`rpc-cancel`, or the loss of its connection; the last three also cancel what still runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from mpreg.deadlines import Deadline, Deadlines
from mpreg.errors import MpregError, ProtocolError, ResourceError, RpcError, TimedOut
from mpreg.rpc.placement import Placement
from mpreg.rpc.plan import Call, Plan
from mpreg.rpc.statistics import RpcStatistics
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import ErrorBody, error_body
from mpreg.wire.rpc import Command, Rpc, RpcCancel, RpcResponse

log = logging.getLogger(__name__)

TIMEOUT_DEFAULT_MS: Final = 30_000.0
TIMEOUT_MS_MAX: Final = 86_400_000.0


class RpcLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be under way at once; the next request is refused with `RESOURCE_EXHAUSTED`."""

    requests_max: int = 20_000
    requests_per_connection_max: int = 8_192
    threads_max: int = 32
    threads_waiting_max: int = 10_000


class _Request:
    """One that is under way."""

    __slots__ = ("deadline", "encoding", "message", "session", "started", "task", "timeout_s")

    def __init__(self, session: Session, message: Rpc, encoding: Encoding, timeout_s: float) -> None:
        self.session = session
        self.message = message
        self.encoding = encoding
        self.timeout_s = timeout_s
        self.started = time.monotonic()
        self.deadline: Deadline
        self.task: asyncio.Task[None]

    def left_s(self) -> float:
        return self.timeout_s - (time.monotonic() - self.started)


class RpcService:
    def __init__(self, placement: Placement, deadlines: Deadlines, limits: RpcLimits) -> None:
        self.statistics = RpcStatistics()
        self._placement = placement
        self._deadlines = deadlines
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._open: dict[Session, dict[str, _Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False

    def __len__(self) -> int:
        """Requests whose function still runs, answered or not."""
        return len(self._tasks)

    # What the node calls.

    def request(self, session: Session, message: Rpc, encoding: Encoding) -> None:
        """`rpc`: run it. The reply comes later, unless it is refused."""
        try:
            timeout_s = self._admit(session, message)
        except MpregError as error:
            self.statistics.failed_requests += 1
            self._send(session, encoding, message.u, codec.NULL[encoding], error_body(error))
            return
        request = _Request(session, message, encoding, timeout_s)
        self._open.setdefault(session, {})[message.u] = request
        request.deadline = self._deadlines.add(timeout_s, lambda: self._expire(request))
        request.task = task = self._loop.create_task(self._run(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self, session: Session, message: RpcCancel, encoding: Encoding) -> None:
        """`rpc-cancel`: nothing happens if the request is unknown or answered already."""
        request = self._open.get(session, {}).get(message.u)
        if request is not None:
            self._fail(request, RpcError("RPC_CANCELLED", "The caller cancelled the request"))
            request.task.cancel()

    def closed(self, session: Session) -> None:
        """The connection is gone: nobody waits for its answers."""
        for request in self._open.pop(session, {}).values():
            request.deadline.cancel()
            request.task.cancel()
            self.statistics.failed_requests += 1

    async def drain(self, grace_s: float) -> None:
        """Refuse new requests, let the running ones finish for `grace_s` seconds, then end them."""
        self._draining = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for requests in list(self._open.values()):
            for request in list(requests.values()):
                self._fail(request, ResourceError("RESOURCE_SHUTTING_DOWN", "The node stopped", state_changed=None))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)

    # How a request goes.

    def _admit(self, session: Session, message: Rpc) -> float:
        """The seconds that the request may take, or why it may not start."""
        if self._draining:
            raise ResourceError("RESOURCE_SHUTTING_DOWN", "The node is stopping and takes no new work")
        timeout_ms = TIMEOUT_DEFAULT_MS if message.timeout_ms is UNSET else message.timeout_ms
        if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
            raise RpcError(
                "RPC_INVALID_REQUEST",
                f"timeout_ms is more than 0 and at most {TIMEOUT_MS_MAX:.0f}",
                path="$.timeout_ms",
                limit=TIMEOUT_MS_MAX,
            )
        mine = self._open.get(session)
        if mine is not None:
            if message.u in mine:
                raise ProtocolError("PROTOCOL_INVALID_MESSAGE", "A request with this `u` is under way", path="$.u")
            if len(mine) >= self._limits.requests_per_connection_max:
                raise _exhausted("this connection", self._limits.requests_per_connection_max)
        if len(self._tasks) >= self._limits.requests_max:
            raise _exhausted("this node", self._limits.requests_max)
        return timeout_ms / 1e3

    async def _run(self, request: _Request) -> None:
        message = request.message
        command = message.cmds[0] if len(message.cmds) == 1 else None
        try:
            if command is not None and not message.intermediate:
                provider = self._placement.place(command.fun, command.locs)
                result = await provider.call(command, request.encoding, request.left_s())
            else:
                result = codec.encode_value(await self._run_plan(request), request.encoding)
        except MpregError as error:
            self._fail(request, error, None if command is None else command.name)
        except asyncio.CancelledError:
            # Ours, after the request was answered; or the function's own doing.
            self._fail(request, RpcError("RPC_CANCELLED", "The function was cancelled", state_changed=None))
            raise
        except Exception:
            log.exception("A request could not be handled")
            self._fail(request, ProtocolError("PROTOCOL_INTERNAL_ERROR", "The node failed; its log says why"))
        else:
            self._succeed(request, result)

    async def _run_plan(self, request: _Request) -> Any:
        """Every command as soon as its inputs are there."""
        message, encoding = request.message, request.encoding
        plan = Plan([_call(command, encoding, at) for at, command in enumerate(message.cmds)])
        commands = {command.name: command for command in message.cmds}
        providers = {name: self._place(command) for name, command in commands.items()}

        stopped = False

        async def run(name: str) -> None:
            nonlocal stopped
            try:
                args, kwargs = plan.arguments(name)
                result = await providers[name].call_plain(commands[name], args, kwargs, encoding, request.left_s())
            except MpregError as error:
                stopped = True
                raise _of_command(error, name) from None
            for ready in plan.finish(name, result):
                if not stopped:
                    group.create_task(run(ready))

        try:
            async with asyncio.TaskGroup() as group:
                for name in plan.start():
                    group.create_task(run(name))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return plan.answer(message.intermediate)

    def _place(self, command: Command) -> Any:
        try:
            return self._placement.place(command.fun, command.locs)
        except MpregError as error:
            raise _of_command(error, command.name) from None

    def _expire(self, request: _Request) -> None:
        timeout_ms = request.timeout_s * 1e3
        self._fail(
            request,
            TimedOut(
                "TIMEOUT_EXCEEDED",
                f"The request did not finish within {timeout_ms:.0f} ms",
                timeout_ms=timeout_ms,
                state_changed=None,
            ),
        )
        request.task.cancel()

    # How it ends, once.

    def _close(self, request: _Request) -> bool:
        mine = self._open.get(request.session)
        if mine is None or mine.pop(request.message.u, None) is None:
            return False
        if not mine:
            del self._open[request.session]
        request.deadline.cancel()
        return True

    def _succeed(self, request: _Request, result: Raw) -> None:
        if self._close(request):
            self.statistics.successful_requests += 1
            self.statistics.latencies.add(time.monotonic() - request.started)
            self._send(request.session, request.encoding, request.message.u, result, None)

    def _fail(self, request: _Request, error: MpregError, command: str | None = None) -> None:
        if self._close(request):
            self.statistics.failed_requests += 1
            self.statistics.latencies.add(time.monotonic() - request.started)
            name = error.details.pop("command", command)
            body = error_body(error, name)
            self._send(request.session, request.encoding, request.message.u, codec.NULL[request.encoding], body)

    def _send(self, session: Session, encoding: Encoding, u: str, r: Raw, error: ErrorBody | None) -> None:
        try:
            session.send(RpcResponse(u, r, error), encoding)
        except MpregError as too_large:
            session.send(RpcResponse(u, codec.NULL[encoding], error_body(too_large)), encoding)


def _call(command: Command, encoding: Encoding, at: int) -> Call:
    args = None if command.args is UNSET else codec.decode_value(command.args, encoding)
    kwargs = None if command.kwargs is UNSET else codec.decode_value(command.kwargs, encoding)
    for field, value, kind in (("args", args, list), ("kwargs", kwargs, dict)):
        if value is not None and not isinstance(value, kind):
            expected = "an array" if kind is list else "an object"
            path = f"$.cmds[{at}].{field}"
            raise RpcError("RPC_INVALID_ARGUMENT", f"Expected {expected} at {path}", path=path, command=command.name)
    return Call(command.name, args or [], kwargs or {})


def _of_command(error: MpregError, name: str) -> MpregError:
    error.details.setdefault("command", name)
    return error


def _exhausted(what: str, limit: int) -> ResourceError:
    return ResourceError(
        "RESOURCE_EXHAUSTED", f"{limit} requests of {what} are running or waiting, which is the limit", limit=limit
    )

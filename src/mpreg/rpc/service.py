"""Answers requests: each gets exactly one reply, in whatever way it ends, and nothing is left of it afterwards.

Requests of one connection run side by side (R-W6). A request ends by its result, its error, its deadline, an
`rpc-cancel`, or the loss of its connection; the last three also cancel what still runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from mpreg.deadlines import Deadline, Deadlines
from mpreg.errors import MpregError, ProtocolError, ResourceError, RpcError, TimedOut
from mpreg.rpc.execution import TEXT_LENGTH_MAX
from mpreg.rpc.placement import Placement, Provider
from mpreg.rpc.plan import Call, Plan, resolve
from mpreg.rpc.remote import RemoteCall, RemoteFunction
from mpreg.rpc.signature import plain_args, plain_kwargs
from mpreg.rpc.starting import Starter
from mpreg.rpc.statistics import RpcStatistics
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import error_body
from mpreg.wire.rpc import Command, InternalAnswer, InternalRpc, Rpc, RpcCancel, RpcResponse

log = logging.getLogger(__name__)

TIMEOUT_DEFAULT_MS: Final = 30_000.0
TIMEOUT_MS_MAX: Final = 86_400_000.0
SWEEP_S: Final = 0.1
"""How late a request may be answered whose node neither answers nor minds the deadline."""
CANCEL_S: Final = 1.0
"""How long a function that was cancelled when the node stops may take to clean up."""


class RpcLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be under way at once; the next request is refused with `RESOURCE_EXHAUSTED`."""

    requests_max: Annotated[int, Meta(ge=1)] = 20_000
    """Requests under way on the node."""
    requests_per_connection_max: Annotated[int, Meta(ge=1)] = 8_192
    """Requests under way on one connection."""
    own_requests_max: Annotated[int, Meta(ge=1)] = 1_000
    """Under way here before a node of a cluster lets others run what it could run itself (R-R5)."""
    threads_max: Annotated[int, Meta(ge=1)] = 32
    """Threads for sync functions."""
    threads_waiting_max: Annotated[int, Meta(ge=1)] = 10_000
    """Calls that wait for a thread."""
    arguments_bytes_max: Annotated[int, Meta(ge=1)] = 100_000_000
    """Of the results of other commands that the arguments of one command of the same request refer to."""


Answer = type[RpcResponse] | type[InternalAnswer]
"""Of a client, or of a node that has passed a command on."""


class _Request(msgspec.Struct, eq=False):
    """One that is under way."""

    session: Session
    u: str
    encoding: Encoding
    timeout_s: float
    answer: Answer
    statistics: RpcStatistics | None
    """None for a command that another node has passed on: it is counted there."""
    started: float
    is_answered: bool = False
    is_open: bool = False
    """It has to wait for something, so `rpc-cancel` must find it."""
    task: asyncio.Task[None] | None = None
    deadline: Deadline | None = None
    """Of a task."""
    relayed: RemoteCall | None = None
    """What waits for another node instead of a task."""

    def left_s(self) -> float:
        return self.timeout_s - (monotonic() - self.started)


class RpcService:
    """Of one event loop. `drain` ends it."""

    def __init__(self, placement: Placement, deadlines: Deadlines, limits: RpcLimits) -> None:
        self.statistics = RpcStatistics()
        self._placement = placement
        self._own: Placement | None = None
        self._deadlines = deadlines
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._starter = Starter(self._loop)
        self._open: dict[Session, dict[str, _Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._relays = 0
        """Requests that only wait for another node, which minds the deadline."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._quiet: asyncio.Future[None] = self._loop.create_future()
        self._draining = False

    def __len__(self) -> int:
        """Requests whose function still runs, answered or not."""
        return len(self._tasks) + self._relays

    @property
    def is_draining(self) -> bool:
        return self._draining

    def in_cluster(self, own: Placement) -> None:
        """Other nodes pass commands on; they run here or not at all, as a command takes one hop within a cluster."""
        self._own = own

    @property
    def running(self) -> int:
        """Requests whose function runs on this node."""
        return len(self._tasks)

    # What the node calls.

    def request(self, session: Session, message: Rpc, encoding: Encoding) -> None:
        """`rpc`: run it. The reply comes at once if nothing has to be waited for, else later."""
        command = message.cmds[0] if len(message.cmds) == 1 and not message.intermediate else None
        try:
            timeout_s = self._admit(session, message.u, message.timeout_ms, self._limits.requests_per_connection_max)
            provider = None if command is None else self._placement.place(command.fun, command.locs)
        except MpregError as error:
            self.statistics.failed_requests += 1
            name = None if command is None else command.name
            self._send_error(session, encoding, RpcResponse, message.u, error, name)
            return
        request = _Request(session, message.u, encoding, timeout_s, RpcResponse, self.statistics, monotonic())
        if command is not None and provider.__class__ is RemoteFunction:
            self._relay(request, command, provider)
            return
        self._start(request, self._run(request, message, command, provider), provider)

    def internal(self, session: Session, message: InternalRpc, encoding: Encoding) -> None:
        """`internal-rpc`: a command that another node could not run itself."""
        command = Command(message.name or "", message.command, message.args, message.kwargs, message.locs)
        try:
            timeout_s = self._admit(session, message.u, message.timeout_ms, self._limits.requests_max)
            assert self._own is not None, "only a node of a cluster has links to others"
            provider = self._own.place(command.fun, command.locs)
        except MpregError as error:
            body = error_body(error)
            session.send(InternalAnswer(message.u, codec.NULL[encoding], body, started=False), encoding)
            return
        request = _Request(session, message.u, encoding, timeout_s, InternalAnswer, None, monotonic())
        if message.results:
            provider = _Resolving(provider, message.results)
        self._start(request, self._run(request, None, command, provider), provider)

    def _relay(self, request: _Request, command: Command, provider: RemoteFunction) -> None:
        """To another node, without a task that would only wait."""
        timeout_s = request.timeout_s
        expires = request.started + timeout_s
        call = RemoteCall(provider, provider.first, command, request.encoding, expires, self._relayed, request)
        request.relayed = call
        self._relays += 1
        request.is_open = True
        mine = self._open.get(request.session)
        if mine is None:
            self._open[request.session] = {request.u: request}
        else:
            mine[request.u] = request
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)
        call.start(timeout_s)

    def _sweep(self) -> None:
        """One timer for all that wait for other nodes, as their own deadlines would cost more than passing them on."""
        self._sweeping = None
        late = monotonic() - SWEEP_S
        under_way = [request for mine in self._open.values() for request in mine.values()]
        for request in under_way:
            if request.relayed is not None and request.relayed.expires <= late:
                self._expire(request)
        if self._relays:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)

    def _relayed(self, request: _Request, result: Raw | None, error: MpregError | None) -> None:
        if error is not None:
            assert request.relayed is not None
            self._fail(request, error, request.relayed.command.name or None)
        else:
            assert result is not None
            self._succeed(request, result)

    def _start(self, request: _Request, work: Coroutine[Any, Any, None], provider: Provider | None) -> None:
        session = request.session
        task = self._loop.create_task(work) if provider is None or provider.waits else self._starter.start(work)
        if task is None:
            return
        request.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if session.closed:  # the function has closed it in its first step
            task.cancel()
            return
        request.is_open = True
        self._open.setdefault(session, {})[request.u] = request
        request.deadline = self._deadlines.add(request.left_s(), partial(self._expire, request))

    def cancel(self, session: Session, message: RpcCancel, encoding: Encoding) -> None:
        """`rpc-cancel`: nothing happens if the request is unknown or answered already."""
        request = self._open.get(session, {}).get(message.u)
        if request is not None:
            self._end(request, RpcError("RPC_CANCELLED", "The caller cancelled the request", state_changed=None))

    def closed(self, session: Session) -> None:
        """The connection is gone: nobody waits for its answers."""
        for request in list(self._open.get(session, {}).values()):
            stop = _stopping(request)
            if self._close(request) and request.statistics is not None:
                request.statistics.failed_requests += 1
            stop()

    async def drain(self, grace_s: float) -> None:
        """Refuse new requests, let the running ones finish for `grace_s` seconds, then end them."""
        self._draining = True
        runs: set[asyncio.Future[None]] = {*self._tasks, self._quiet} if self._relays else {*self._tasks}
        if runs:
            await asyncio.wait(runs, timeout=grace_s)
        for requests in list(self._open.values()):
            for request in list(requests.values()):
                self._end(request, ResourceError("RESOURCE_SHUTTING_DOWN", "The node stopped", state_changed=None))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CANCEL_S)
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._starter.close()

    # How a request goes.

    def _admit(self, session: Session, u: str, asked_ms: float | UnsetType, connection_max: int) -> float:
        """The seconds that the request may take, or why it may not start."""
        if self._draining:
            raise ResourceError("RESOURCE_SHUTTING_DOWN", "The node is stopping and takes no new work")
        timeout_ms = TIMEOUT_DEFAULT_MS if asked_ms is UNSET else asked_ms
        if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
            raise RpcError(
                "RPC_INVALID_REQUEST",
                f"timeout_ms is more than 0 and at most {TIMEOUT_MS_MAX:.0f}",
                path="$.timeout_ms",
                limit=TIMEOUT_MS_MAX,
            )
        mine = self._open.get(session)
        if mine is not None:
            if u in mine:
                raise ProtocolError("PROTOCOL_INVALID_MESSAGE", "A request with this `u` is under way", path="$.u")
            if len(mine) >= connection_max:
                raise _exhausted("this connection", connection_max)
        if len(self._tasks) + self._relays >= self._limits.requests_max:
            raise _exhausted("this node", self._limits.requests_max)
        return timeout_ms / 1e3

    async def _run(
        self, request: _Request, message: Rpc | None, command: Command | None, provider: Provider | None
    ) -> None:
        try:
            if command is not None and provider is not None:
                result = await provider.call(command, request.encoding, request.timeout_s)
            else:
                assert message is not None
                result = await self._run_plan(request, message)
        except MpregError as error:
            self._fail(request, error, error.details.pop("command", None) if command is None else command.name or None)
        except _CommandFailed as failed:
            self._fail(request, failed.error, failed.command)
        except asyncio.CancelledError:  # by `_end` or `closed`, or by someone who found the task
            self._fail(request, RpcError("RPC_CANCELLED", "The request was cancelled", state_changed=None))
            raise
        except Exception:
            log.exception("A request could not be handled")
            text = "The node failed; its log says why"
            self._fail(request, ProtocolError("PROTOCOL_INTERNAL_ERROR", text, state_changed=None))
        else:
            self._succeed(request, result)

    async def _run_plan(self, request: _Request, message: Rpc) -> Raw:
        """Every command as soon as its inputs are there."""
        encoding = request.encoding
        plan = Plan(
            [_call(command, encoding) for command in message.cmds],
            lambda value: len(memoryview(codec.encode_value(value, encoding))),
            self._limits.arguments_bytes_max,
        )
        commands = {command.name: command for command in message.cmds}
        providers = {name: self._place(command) for name, command in commands.items()}
        results: dict[str, Raw] = {}
        stopped = False

        async def run(name: str) -> None:
            nonlocal stopped
            try:
                args, kwargs = plan.arguments(name)
                result = await providers[name].call_plain(commands[name], args, kwargs, encoding, request.left_s())
                needed = codec.decode_value(result, encoding) if plan.is_needed(name) else None
            except MpregError as error:
                stopped = True
                raise _CommandFailed(name, error) from None
            results[name] = result
            for ready in plan.finish(name, needed, len(memoryview(result))):
                if not stopped:
                    group.create_task(run(ready))

        try:
            async with asyncio.TaskGroup() as group:
                for name in plan.start():
                    group.create_task(run(name))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        if len(commands) == 1 and not message.intermediate:
            return results.popitem()[1]
        return codec.encode_value({name: results[name] for name in plan.answer(message.intermediate)}, encoding)

    def _place(self, command: Command) -> Provider:
        try:
            return self._placement.place(command.fun, command.locs)
        except MpregError as error:
            raise _CommandFailed(command.name, error) from None

    def _expire(self, request: _Request) -> None:
        timeout_ms = request.timeout_s * 1e3
        text = f"The request did not finish within {timeout_ms:.0f} ms"
        self._end(request, TimedOut("TIMEOUT_EXCEEDED", text, timeout_ms=timeout_ms, state_changed=None))

    # How it ends, once.

    def _end(self, request: _Request, error: MpregError) -> None:
        """Before its function does."""
        stop = _stopping(request)
        self._fail(request, error)
        stop()

    def _close(self, request: _Request) -> bool:
        """Whether it is to be answered: the first who asks hears yes."""
        if request.is_answered:
            return False
        request.is_answered = True
        if request.deadline is not None:
            request.deadline.cancel()
        if request.is_open:
            mine = self._open[request.session]
            del mine[request.u]
            if not mine:
                del self._open[request.session]
        if request.relayed is not None:
            request.relayed = None  # they refer to each other
            self._relays -= 1
            if self._draining and not self._relays and not self._quiet.done():
                self._quiet.set_result(None)
        return True

    def _succeed(self, request: _Request, result: Raw) -> None:
        if not self._close(request):
            return
        u, encoding, statistics = request.u, request.encoding, request.statistics
        try:
            request.session.send(request.answer(u, result), encoding)
        except MpregError as too_large:
            if statistics is not None:
                statistics.failed_requests += 1
            self._send_error(request.session, encoding, request.answer, u, too_large, None)
            return
        if statistics is not None:
            statistics.successful_requests += 1
            statistics.latencies.add(monotonic() - request.started)

    def _fail(self, request: _Request, error: MpregError, command: str | None = None) -> None:
        if self._close(request):
            if request.statistics is not None:
                request.statistics.failed_requests += 1
                request.statistics.latencies.add(monotonic() - request.started)
            self._send_error(request.session, request.encoding, request.answer, request.u, error, command)

    def _send_error(
        self, session: Session, encoding: Encoding, answer: Answer, u: str, error: MpregError, command: str | None
    ) -> None:
        body = error_body(error, command)
        try:
            session.send(answer(u, codec.NULL[encoding], body), encoding)
        except Exception as problem:  # noqa: BLE001 - details of a function's own error may have no encoding or no end
            log.debug("An error could not be sent whole: %s", problem)
            bare = msgspec.structs.replace(body, details=UNSET, traceback=UNSET, message=body.message[:TEXT_LENGTH_MAX])
            session.send(answer(u, codec.NULL[encoding], bare), encoding)


def _stopping(request: _Request) -> Callable[[], object]:
    """What ends the work for a request that is under way."""
    work = request.task or request.relayed
    assert work is not None
    return work.cancel


class _Resolving:
    """A command that came with the results that its arguments refer to."""

    def __init__(self, provider: Provider, results: dict[str, Any]) -> None:
        self.waits = provider.waits
        self._provider = provider
        self._results = results

    def call(self, command: Command, encoding: Encoding, timeout_s: float) -> Awaitable[Raw]:
        args, kwargs = resolve(_call(command, encoding), self._results)
        return self._provider.call_plain(command, args, kwargs, encoding, timeout_s)

    def call_plain(
        self, command: Command, args: list[Any], kwargs: dict[str, Any], encoding: Encoding, timeout_s: float
    ) -> Awaitable[Raw]:
        return self._provider.call_plain(command, args, kwargs, encoding, timeout_s)


class _CommandFailed(Exception):
    def __init__(self, command: str, error: MpregError) -> None:
        super().__init__(command)
        self.command = command
        self.error = error


def _call(command: Command, encoding: Encoding) -> Call:
    try:
        return Call(command.name, plain_args(command.args, encoding), plain_kwargs(command.kwargs, encoding))
    except MpregError as error:
        raise _CommandFailed(command.name, error) from None


def _exhausted(what: str, limit: int) -> ResourceError:
    return ResourceError(
        "RESOURCE_EXHAUSTED", f"{limit} requests of {what} are running or waiting, which is the limit", limit=limit
    )

"""Commands that run on other nodes: one hop, one answer each, and nothing left when the link goes.

A call is sent once; it is repeated on another node only if it surely was not started, or may be run twice (R-R5).
"""

from __future__ import annotations

import asyncio
import itertools
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from mpreg.errors import MpregError, ResourceError, TransportError
from mpreg.rpc.offers import Offered
from mpreg.transport import Link
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import JSON, MSGPACK, Encoding
from mpreg.wire.error import to_exception
from mpreg.wire.rpc import Command, InternalAnswer, InternalRpc, RpcCancel

ATTEMPTS_MAX: Final = 3
TIMEOUT_MIN_S: Final = 1e-6
"""A command whose time is over is sent all the same: the provider says so."""

_LOST: Final = frozenset({"TRANSPORT_CONNECTION_LOST", "RESOURCE_SHUTTING_DOWN"})
"""After these nobody knows how far the command came."""


class NotStarted(Exception):
    """The node has refused the command, or it was never sent."""

    def __init__(self, error: MpregError) -> None:
        super().__init__(str(error))
        self.error = error


Done = Callable[[Any, Raw | None, MpregError | None], None]
"""For what the command was; its result, or why there is none."""


class RemoteCalls:
    """What this node has asked others, and waits for."""

    def __init__(self) -> None:
        self._next_u = itertools.count(1).__next__
        self._open: dict[Session, dict[str, RemoteCall]] = {}
        """Of every node that was asked, as long as its link lasts."""
        self.sent = 0
        self.repeated = 0
        self.lost_calls = 0

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def open_at(self, node: Session) -> int:
        """How many this node waits for there."""
        return len(self._open.get(node, ()))

    def send(self, node: Session, call: RemoteCall, timeout_s: float) -> None:
        """Raises `NotStarted`, or what speaks against any node."""
        link = node.link
        if not link.takes_more:
            raise NotStarted(_full(link) if not link.closed else lost(node, None))
        u = call.u = str(self._next_u())
        command = call.command
        message = InternalRpc(
            u, command.fun, command.args, command.kwargs, locs=command.locs, timeout_ms=timeout_s * 1e3
        )
        encoding = call.encoding
        link.send((codec.encode_json if encoding is JSON else codec.encode_msgpack)(message), encoding)
        mine = self._open.get(node)
        if mine is None:
            self._open[node] = {u: call}
        else:
            mine[u] = call
        self.sent += 1

    def cancel(self, node: Session, u: str) -> None:
        """Nobody waits for it any more."""
        if self._take(node, u) is not None:
            node.send(RpcCancel(u), MSGPACK)

    def answered(self, node: Session, message: InternalAnswer, encoding: Encoding) -> None:
        """`internal-answer`. One that nobody waits for is dropped."""
        call = self._take(node, message.u)
        if call is None:
            return
        if message.error is None:
            call.done(call.of, message.r, None)
        else:
            call.failed(to_exception(message.error), started=message.started is not False)

    def refused(self, node: Session, u: str, error: MpregError) -> None:
        """The node could not even read it."""
        call = self._take(node, u)
        if call is not None:
            call.failed(error, started=False)

    def lost(self, node: Session, error: MpregError | None) -> None:
        """The link is gone, or the node is dead: nobody will answer."""
        for call in self._open.pop(node, {}).values():
            self.lost_calls += 1
            call.failed(lost(node, error), started=True)

    def _take(self, node: Session, u: str) -> RemoteCall | None:
        mine = self._open.get(node)
        return None if mine is None else mine.pop(u, None)


Choose = Callable[[str, Sequence[str], Sequence[Session]], Offered[Session] | None]
"""Of those that have the function with these resources, but for those that were tried."""


class RemoteCall(msgspec.Struct, eq=False):
    """One command on its way; `done` is called once, unless it is cancelled before."""

    function: RemoteFunction
    offered: Offered[Session]
    """By the node that is asked."""
    command: Command
    encoding: Encoding
    expires: float
    done: Done
    of: Any
    """For whom it is: the first that `done` is told."""
    u: str = ""
    tried: tuple[Session, ...] = ()

    def start(self, timeout_s: float) -> None:
        try:
            self.function.calls.send(self.offered.node, self, timeout_s)
        except NotStarted as refused:
            self.failed(refused.error, started=False)
        except MpregError as error:
            self.done(self.of, None, error)

    def failed(self, error: MpregError, *, started: bool) -> None:
        """Another node has it next, if it surely did not start or may run twice (R-R5); else that is it."""
        if not started or (self.offered.idempotent and error.code in _LOST):
            self.tried = (*self.tried, self.offered.node)
            left_s = self.expires - monotonic()
            again = len(self.tried) < ATTEMPTS_MAX and left_s > 0
            another = self.function.choose(self.command.fun, self.command.locs, self.tried) if again else None
            if another is not None:
                self.offered = another
                self.function.calls.repeated += 1
                self.start(left_s)
                return
        self.done(self.of, None, error)

    def cancel(self) -> None:
        self.function.calls.cancel(self.offered.node, self.u)


class RemoteFunction:
    """A `Provider` on other nodes; `first` is the one that is tried first."""

    waits = True
    __slots__ = ("_first", "calls", "choose")

    def __init__(self, calls: RemoteCalls, first: Offered[Session], choose: Choose) -> None:
        self.calls = calls
        self.choose = choose
        self._first = first

    def relay(self, command: Command, encoding: Encoding, expires: float, done: Done, of: Any) -> RemoteCall:
        """The command as it came, without a task that waits; to be started."""
        return RemoteCall(self, self._first, command, encoding, expires, done, of)

    def call(self, command: Command, encoding: Encoding, timeout_s: float) -> Awaitable[Raw]:
        return self._wait(command, encoding, timeout_s)

    def call_plain(
        self, command: Command, args: list[Any], kwargs: dict[str, Any], encoding: Encoding, timeout_s: float
    ) -> Awaitable[Raw]:
        raw_args = codec.encode_value(args, encoding) if args else UNSET
        raw_kwargs = codec.encode_value(kwargs, encoding) if kwargs else UNSET
        return self._wait(Command(command.name, command.fun, raw_args, raw_kwargs, command.locs), encoding, timeout_s)

    async def _wait(self, command: Command, encoding: Encoding, timeout_s: float) -> Raw:
        timeout_s = max(timeout_s, TIMEOUT_MIN_S)
        future: Future[Raw] = asyncio.get_running_loop().create_future()
        call = self.relay(command, encoding, monotonic() + timeout_s, _resolve, future)
        call.start(timeout_s)
        try:
            return await future
        except asyncio.CancelledError:
            call.cancel()
            raise


def _resolve(future: Future[Raw], result: Raw | None, error: MpregError | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        assert result is not None
        future.set_result(result)


def _full(link: Link) -> ResourceError:
    limit = link.limits.waiting_bytes_max // 2
    return ResourceError("RESOURCE_EXHAUSTED", f"More than {limit} bytes wait to be read by {link.url}", limit=limit)


def lost(node: Session, cause: MpregError | None) -> TransportError:
    why = "it closed the link" if cause is None else cause.message
    return TransportError(
        "TRANSPORT_CONNECTION_LOST",
        f"The node that ran the function has gone: {why}",
        url=node.link.url,
        state_changed=None,
    )

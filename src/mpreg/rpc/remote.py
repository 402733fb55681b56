"""Commands that run on other nodes: one hop, one answer each, and nothing left when the link goes.

A call is sent once; it is repeated on another node only if it surely was not started, or may be run twice (R-R5).
"""

from __future__ import annotations

import asyncio
import itertools
from asyncio import Future
from collections import defaultdict
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


Done = Callable[[Any, Raw | None, MpregError | None], None]
"""For what the command was; its result, or why there is none."""


class RemoteCalls:
    """What this node has asked others, and waits for."""

    def __init__(self) -> None:
        self.next_u = itertools.count(1).__next__
        self.open: defaultdict[Session, dict[str, RemoteCall]] = defaultdict(dict)
        """By the node that was asked, which is here as long as its link lasts, and by `u`."""
        self.sent = 0
        self.repeated = 0
        self.lost_calls = 0

    def __len__(self) -> int:
        return sum(map(len, self.open.values()))

    def open_at(self, node: Session) -> int:
        """How many this node waits for there."""
        return len(self.open.get(node, ()))

    def cancel(self, node: Session, u: str) -> None:
        """Nobody waits for it any more."""
        if node in self.open and self.open[node].pop(u, None) is not None:
            node.send(RpcCancel(u), MSGPACK)

    def answered(self, node: Session, message: InternalAnswer, encoding: Encoding) -> None:
        """`internal-answer`. One that nobody waits for is dropped."""
        call = self.open[node].pop(message.u, None)
        if call is None:
            return
        if message.error is None:
            call.done(call.of, message.r, None)
        else:
            call.failed(to_exception(message.error), started=message.started is not False)

    def refused(self, node: Session, u: str, error: MpregError) -> None:
        """The node could not even read it."""
        call = self.open[node].pop(u, None)
        if call is not None:
            call.failed(error, started=False)

    def lost(self, node: Session, error: MpregError | None) -> None:
        """The link is gone, or the node is dead: nobody will answer."""
        for call in self.open.pop(node, {}).values():
            self.lost_calls += 1
            call.failed(lost(node, error), started=True)


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
        calls, node = self.function.calls, self.offered.node
        link = node.link
        if not link.takes_more:
            self.failed(lost(node, None) if link.closed else _full(link), started=False)
            return
        u = self.u = str(calls.next_u())
        command, encoding = self.command, self.encoding
        message = InternalRpc(
            u, command.fun, command.args, command.kwargs, locs=command.locs, timeout_ms=timeout_s * 1e3
        )
        try:
            link.send((codec.encode_json if encoding is JSON else codec.encode_msgpack)(message), encoding)
        except MpregError as error:  # it is too long for any node
            self.done(self.of, None, error)
            return
        calls.open[node][u] = self
        calls.sent += 1

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
    __slots__ = ("calls", "choose", "first")

    def __init__(self, calls: RemoteCalls, first: Offered[Session], choose: Choose) -> None:
        self.calls = calls
        self.choose = choose
        self.first = first

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
        call = RemoteCall(self, self.first, command, encoding, monotonic() + timeout_s, _resolve, future)
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

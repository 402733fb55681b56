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

from msgspec import UNSET, Raw

from mpreg.errors import MpregError, ResourceError, TransportError
from mpreg.rpc.offers import Offered
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import to_exception
from mpreg.wire.rpc import Command, InternalAnswer, InternalRpc, RpcCancel

ATTEMPTS_MAX: Final = 3

_LOST: Final = frozenset({"TRANSPORT_CONNECTION_LOST", "RESOURCE_SHUTTING_DOWN"})
"""After these nobody knows how far the command came."""


class NotStarted(Exception):
    """The node has refused the command, or it was never sent."""

    def __init__(self, error: MpregError) -> None:
        super().__init__(str(error))
        self.error = error


class RemoteCalls:
    """What this node has asked others, and waits for."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next_u = itertools.count(1).__next__
        self._open: dict[Session, dict[str, Future[Raw]]] = {}
        self.sent = 0
        self.repeated = 0
        self.lost_calls = 0

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def open_at(self, node: Session) -> int:
        """How many this node waits for there."""
        return len(self._open.get(node, ()))

    def send(
        self,
        node: Session,
        fun: str,
        args: Any,
        kwargs: Any,
        locs: tuple[str, ...],
        encoding: Encoding,
        timeout_s: float,
    ) -> tuple[str, Future[Raw]]:
        """Raises `NotStarted`."""
        if node.closed:
            raise NotStarted(lost(node, None))
        limits = node.link.limits
        if node.link.waiting > limits.waiting_bytes_max // 2:
            text = f"More than {limits.waiting_bytes_max // 2} bytes wait to be read by {node.link.url}"
            raise NotStarted(ResourceError("RESOURCE_EXHAUSTED", text, limit=limits.waiting_bytes_max // 2))
        u = str(self._next_u())
        message = InternalRpc(u, fun, args, kwargs, locs=locs, timeout_ms=max(timeout_s * 1e3, 1e-3))
        node.send(message, encoding)
        future: Future[Raw] = self._loop.create_future()
        self._open.setdefault(node, {})[u] = future
        self.sent += 1
        return u, future

    def cancel(self, node: Session, u: str) -> None:
        """Nobody waits for it any more."""
        if self._take(node, u) is not None:
            node.send(RpcCancel(u), Encoding.MSGPACK)

    def answered(self, node: Session, message: InternalAnswer, encoding: Encoding) -> None:
        """`internal-answer`. One that nobody waits for is dropped."""
        future = self._take(node, message.u)
        if future is None or future.done():
            return
        if message.error is None:
            future.set_result(message.r)
        else:
            error = to_exception(message.error)
            future.set_exception(error if message.started else NotStarted(error))

    def failed(self, node: Session, u: str, error: MpregError) -> None:
        """The node could not even read it."""
        future = self._take(node, u)
        if future is not None and not future.done():
            future.set_exception(NotStarted(error))

    def lost(self, node: Session, error: MpregError | None) -> None:
        """The link is gone, or the node is dead: nobody will answer."""
        for future in self._open.pop(node, {}).values():
            if not future.done():
                self.lost_calls += 1
                future.set_exception(lost(node, error))

    def _take(self, node: Session, u: str) -> Future[Raw] | None:
        mine = self._open.get(node)
        future = None if mine is None else mine.pop(u, None)
        if mine is not None and not mine:
            del self._open[node]
        return future


class RemoteFunction:
    """A `Provider` on other nodes. `choose` picks one of them, or none of those that are left."""

    waits = True

    def __init__(
        self,
        calls: RemoteCalls,
        first: Offered[Session],
        choose: Callable[[Sequence[Session]], Offered[Session] | None],
    ) -> None:
        self._calls = calls
        self._first = first
        self._choose = choose

    def call(self, command: Command, encoding: Encoding, timeout_s: float) -> Awaitable[Raw]:
        return self._run(command.fun, command.args, command.kwargs, command.locs, encoding, timeout_s)

    def call_plain(
        self, command: Command, args: list[Any], kwargs: dict[str, Any], encoding: Encoding, timeout_s: float
    ) -> Awaitable[Raw]:
        raw_args = codec.encode_value(args, encoding) if args else UNSET
        raw_kwargs = codec.encode_value(kwargs, encoding) if kwargs else UNSET
        return self._run(command.fun, raw_args, raw_kwargs, command.locs, encoding, timeout_s)

    async def _run(
        self, fun: str, args: Any, kwargs: Any, locs: tuple[str, ...], encoding: Encoding, timeout_s: float
    ) -> Raw:
        calls, offered, deadline = self._calls, self._first, monotonic() + timeout_s
        tried: list[Session] = []
        while True:
            node = offered.node
            u = ""
            try:
                u, answer = calls.send(node, fun, args, kwargs, locs, encoding, deadline - monotonic())
                return await answer
            except NotStarted as refused:
                error = refused.error
            except MpregError as failed:
                if not (offered.idempotent and failed.code in _LOST):
                    raise
                error = failed
            except asyncio.CancelledError:
                calls.cancel(node, u)
                raise
            tried.append(node)
            another = self._choose(tried) if len(tried) < ATTEMPTS_MAX else None
            if another is None:
                raise error
            offered = another
            calls.repeated += 1


def lost(node: Session, cause: MpregError | None) -> TransportError:
    why = "it closed the link" if cause is None else cause.message
    return TransportError(
        "TRANSPORT_CONNECTION_LOST",
        f"The node that ran the function has gone: {why}",
        url=node.link.url,
        state_changed=None,
    )

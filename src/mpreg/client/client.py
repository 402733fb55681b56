"""What a program calls: functions of a cluster, through whichever node it is connected to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

from msgspec import UNSET, Raw, UnsetType

from mpreg.client.cache import Cache
from mpreg.client.caches import Caches
from mpreg.client.calls import Call
from mpreg.client.commands import CommandBuilder, assemble, single
from mpreg.client.connection import Handler
from mpreg.client.discovery import discover
from mpreg.client.exchange import Exchange
from mpreg.client.pubsub import PubSub
from mpreg.client.queue import Queue
from mpreg.client.queues import Queues
from mpreg.client.results import check_type, decode_result
from mpreg.client.retry import with_retries
from mpreg.client.settings import ClientSettings
from mpreg.client.sources import Source
from mpreg.client.subscription import BUFFER_MAX, Callback, OnFull, OnSlow, Subscription
from mpreg.client.upkeep import Upkeep
from mpreg.errors import MpregError, ProtocolError, RpcError
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import ErrorResponse, to_exception
from mpreg.wire.message import Message
from mpreg.wire.queues import Scheduled
from mpreg.wire.received import Message as TopicMessage
from mpreg.wire.rpc import Command, Rpc, RpcResponse

T = TypeVar("T")
M = TypeVar("M", bound=Message)

NODE_TIMEOUT_S: Final = 30.0
"""What a node assumes if a request does not say (R-R7), so it need not be said."""


class Client:
    """A connection that is kept up. Made by `connect`; many calls may be under way at once.

    When the connection breaks, what was sent fails with `TRANSPORT_CONNECTION_LOST` (nobody knows whether it ran), what
    was not sent waits for the next connection, up to its timeout.
    """

    def __init__(self, sources: Sequence[Source], settings: ClientSettings) -> None:
        self.settings = settings
        self._exchange = Exchange(settings)
        self._upkeep = Upkeep(sources, self._exchange, settings)
        self._discovering: asyncio.Task[None] | None = None
        self._next_u = itertools.count(1).__next__
        self._encoding = settings.encoding
        self._encode = codec.encode_json if settings.encoding is Encoding.JSON else codec.encode_msgpack
        self._timeout_s = settings.timeout_s
        self._retry = settings.retry
        self._pubsub = PubSub(self, self._exchange, settings.encoding, settings.timeout_s)
        self.on_reconnected(self._pubsub.reconnected)
        self.queues = Queues(self, self._exchange, settings.encoding, settings.timeout_s)
        """All queues, and what is sent to them again and again."""
        self.on_reconnected(self.queues.reconnected)
        self._caches = Caches(self, self._exchange, settings.encoding, settings.timeout_s)
        self.on_reconnected(self._caches.reconnected)

    async def start(self) -> None:
        """`connect` does this. Raises why no node can be reached."""
        await self._upkeep.start()
        if self.settings.discover_s and self._upkeep.schemes:
            discovering = discover(self._ask_nodes, self._upkeep.schemes, self.settings.discover_s, self._upkeep.learn)
            self._discovering = asyncio.create_task(discovering, name="mpreg-discovery")

    async def close(self) -> None:
        """Calls that are under way fail with `TRANSPORT_CLOSED`. Closing twice is fine."""
        await self._caches.close()
        discovering, self._discovering = self._discovering, None
        if discovering is not None:
            discovering.cancel()
            await asyncio.wait([discovering])
        await self.queues.close()
        await self._pubsub.close()
        await self._upkeep.stop()
        await self._exchange.close()

    # Functions.

    @overload
    async def call(
        self,
        fun: str,
        /,
        *args: Any,
        locs: Iterable[str] = ...,
        timeout: float | None = ...,
        result_type: type[T],
        **kwargs: Any,
    ) -> T: ...

    @overload
    async def call(
        self,
        fun: str,
        /,
        *args: Any,
        locs: Iterable[str] = ...,
        timeout: float | None = ...,
        result_type: Any = ...,
        **kwargs: Any,
    ) -> Any: ...

    async def call(
        self,
        fun: str,
        /,
        *args: Any,
        locs: Iterable[str] = (),
        timeout: float | None = None,
        result_type: Any = Any,
        **kwargs: Any,
    ) -> Any:
        """The result of one function, which runs where `locs` are. Cancelling the call cancels the function.

        `result_type` may be any type that msgspec decodes: `list[int]`, a `Struct`, a dataclass; a result that does
        not fit raises `RPC_INVALID_RESULT`. What the node answers with is raised as a subclass of `MpregError`.
        """
        if result_type is not Any:
            check_type(result_type)
        commands = (single(fun, args, kwargs, locs),)
        if self._retry is not None:
            raw, encoding = await self._answer_with_retries(commands, timeout, False)
            return decode_result(raw, encoding, result_type)
        call = self._send(commands, timeout, False)
        try:
            reply = await call.future
        except BaseException:
            self._exchange.abandon(call)
            raise
        return decode_result(_result_in(reply), call.encoding, result_type)

    @overload
    async def request(self, wanted: CommandBuilder[T], /, *, timeout: float | None = ...) -> T: ...

    @overload
    async def request(self, wanted: Sequence[CommandBuilder[Any]], /, *, timeout: float | None = ...) -> list[Any]: ...

    async def request(
        self, wanted: CommandBuilder[Any] | Sequence[CommandBuilder[Any]], /, *, timeout: float | None = None
    ) -> Any:
        """The results of commands, and of what they refer to, in one round trip; for a list of commands a list.

        Independent commands run at the same time. If one fails, its error is raised, with `details["command"]`.
        """
        builders = [wanted] if isinstance(wanted, CommandBuilder) else list(wanted)
        if not builders:
            return []
        for builder in builders:
            check_type(builder.result_type)
        names, commands = assemble(builders)
        ask = self._answer if self._retry is None else self._answer_with_retries
        raw, encoding = await ask(commands, timeout, not _are_final(builders, names))
        by_name = {commands[0].name: raw} if len(commands) == 1 else decode_result(raw, encoding, dict[str, Raw])
        results = [decode_result(by_name[names[each]], encoding, each.result_type) for each in builders]
        return results[0] if isinstance(wanted, CommandBuilder) else results

    # Topics.

    async def publish(
        self,
        topic: str,
        payload: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        reply_to: str | None = None,
        ack: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Publish a message. What is published in one turn of the event loop leaves as one batch, in order.

        With `ack` it returns when a node has the message, which is then published exactly once even if the connection
        breaks meanwhile. Without, it waits only while the node is far behind, and what is under way when the connection
        breaks is lost.
        """
        await self._pubsub.publish(topic, payload, headers, reply_to, ack, timeout)

    @overload
    def subscribe(
        self,
        *patterns: str,
        payload_type: type[T],
        exact: bool = ...,
        backlog: float | None = ...,
        callback: Callback[T] | None = ...,
        buffer: int = ...,
        on_full: OnFull = ...,
        on_slow: OnSlow = ...,
    ) -> Subscription[T]: ...

    @overload
    def subscribe(
        self,
        *patterns: str,
        payload_type: Any = ...,
        exact: bool = ...,
        backlog: float | None = ...,
        callback: Callback[Any] | None = ...,
        buffer: int = ...,
        on_full: OnFull = ...,
        on_slow: OnSlow = ...,
    ) -> Subscription[Any]: ...

    def subscribe(
        self,
        *patterns: str,
        payload_type: Any = Any,
        exact: bool = False,
        backlog: float | None = None,
        callback: Callback[Any] | None = None,
        buffer: int = BUFFER_MAX,
        on_full: OnFull = "drop_oldest",
        on_slow: OnSlow = "disconnect",
    ) -> Subscription[Any]:
        """Messages whose topic matches a pattern: `async with client.subscribe("orders.#") as messages`, then
        `async for message in messages`; or with a `callback`, sync or async, that is called with each in order.

        `backlog` asks for what was published in the last so many seconds. After a reconnect the stream goes on where it
        was. `buffer` messages may wait for the program; then `on_full` drops the oldest, or ends the stream with
        `PUBSUB_BUFFER_FULL`. `on_slow` says what the node does when this connection does not keep up.
        """
        return self._pubsub.subscribe(
            patterns,
            exact=exact,
            backlog=backlog,
            payload_type=payload_type,
            callback=callback,
            buffer=buffer,
            on_full=on_full,
            on_slow=on_slow,
        )

    async def query(
        self, topic: str, payload: Any, *, headers: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> TopicMessage[Any]:
        """Publish a question and return the first answer. Raises `TIMEOUT_EXCEEDED` when nobody answers."""
        return await self._pubsub.query(topic, payload, headers, timeout)

    async def reply(
        self, message: TopicMessage[Any], payload: Any, *, headers: Mapping[str, Any] | None = None
    ) -> None:
        """Answer a question. `ValueError` if the message is none."""
        await self._pubsub.reply(message, payload, headers)

    # Queues.

    def queue(self, name: str) -> Queue:
        """A queue by its name; it need not exist yet."""
        return self.queues.queue(name)

    async def schedule(
        self,
        cron: str,
        queue: str,
        payload: Any,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        topic: str = "message",
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> Scheduled:
        """Send `payload` to a queue whenever a cron expression says (`"0 3 * * *"`): kept in the store, and done once
        by whichever node is alive. The same `name` again changes it."""
        return await self.queues.schedule(
            cron, queue, payload, name=name, timezone=timezone, topic=topic, priority=priority, headers=headers
        )

    # The cache.

    def cache(self, namespace: str, *, near: int = 0, version: str = "v1") -> Cache:
        """The cache of the cluster, one namespace of it. `near` is how many values this process may hold itself, as
        long as its node tells when they change."""
        return Cache(self._caches, namespace, near=near, version=version)

    # Other messages: what topics, queues and caches are built on.

    def new_u(self) -> str:
        """A correlation id that no other message of this client has."""
        return str(self._next_u())

    async def ask(self, message: Message, reply_type: type[M], *, timeout: float | None = None) -> M:
        """Send a message that has a `u` (see `new_u`), return its answer. Raises what an `error-response` says."""
        u = getattr(message, "u", None)
        assert isinstance(u, str)
        timeout_s = self._timeout_s if timeout is None else timeout
        call = await self._exchange.ask(u, codec.encode(message, self._encoding), timeout_s, False)
        reply = call.future.result()
        if isinstance(reply, ErrorResponse):
            raise to_exception(reply.error)
        if not isinstance(reply, reply_type):
            raise _unexpected(reply)
        return reply

    def tell(self, message: Message) -> None:
        """Send a message that nobody answers. Raises `TRANSPORT_CONNECTION_LOST` if there is no connection now."""
        self._exchange.tell(codec.encode(message, self._encoding))

    def on(self, message_type: type[Message], handler: Handler) -> None:
        """Whom messages of this class go to, that the node sends unasked. One handler a class."""
        if message_type in self._exchange.handlers:
            raise ValueError(f"{message_type.__name__} has a handler already")
        self._exchange.handlers[message_type] = handler

    def on_reconnected(self, tell: Callable[[], Awaitable[None]]) -> None:
        """What to do after the connection was lost and is there again, maybe to another node."""
        self._upkeep.on_reconnected.append(tell)

    async def _ask_nodes(self) -> list[dict[str, Any]]:
        return await self.call("mpreg.nodes", result_type=list[dict[str, Any]])

    # How things are.

    @property
    def is_connected(self) -> bool:
        return self._exchange.current is not None

    @property
    def url(self) -> str | None:
        """Of the node that this client is connected to at the moment."""
        current = self._exchange.current
        return None if current is None else current.link.url

    @property
    def calls_open(self) -> int:
        """Sent and not answered."""
        return self._exchange.open_calls

    @property
    def calls_waiting(self) -> int:
        """Not sent yet, for want of a connection or of room on it."""
        return self._exchange.waiting_calls

    def __repr__(self) -> str:
        return f"<Client {self.url or 'not connected'}>"

    async def _answer(
        self, commands: tuple[Command, ...], timeout: float | None, intermediate: bool
    ) -> tuple[Raw, Encoding]:
        call = self._send(commands, timeout, intermediate)
        try:
            reply = await call.future
        except BaseException:
            self._exchange.abandon(call)
            raise
        return _result_in(reply), call.encoding

    async def _answer_with_retries(
        self, commands: tuple[Command, ...], timeout: float | None, intermediate: bool
    ) -> tuple[Raw, Encoding]:
        assert self._retry is not None
        timeout_s = self._timeout_s if timeout is None else timeout
        return await with_retries(self._retry, timeout_s, lambda left_s: self._answer(commands, left_s, intermediate))

    def _send(self, commands: tuple[Command, ...], timeout: float | None, intermediate: bool) -> Call:
        timeout_s = self._timeout_s if timeout is None else timeout
        if not timeout_s > 0:  # nor NaN
            raise ValueError("timeout is a number of seconds above 0")
        timeout_ms: float | UnsetType = UNSET if timeout_s == NODE_TIMEOUT_S else timeout_s * 1e3
        u = str(self._next_u())
        try:
            data = self._encode(Rpc(u, commands, timeout_ms, intermediate))
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise RpcError("RPC_INVALID_ARGUMENT", f"The arguments can't be encoded: {problem}") from None
        return self._exchange.send(u, data, timeout_s, True)


def _result_in(reply: Message) -> Raw:
    if isinstance(reply, RpcResponse):
        if reply.error is not None:
            raise to_exception(reply.error)
        return reply.r
    raise to_exception(reply.error) if isinstance(reply, ErrorResponse) else _unexpected(reply)


def _unexpected(reply: Message) -> MpregError:
    tag = reply.__struct_config__.tag
    return ProtocolError("PROTOCOL_UNEXPECTED_MESSAGE", f"{tag!r} does not answer this message", state_changed=None)


def _are_final(builders: Sequence[CommandBuilder[Any]], names: Mapping[CommandBuilder[Any], str]) -> bool:
    """Whether no wanted command is another one's input, so that the node's plain answer has all of them (R-R1)."""
    used = {used for builder in names for used in builder.needs()}
    return not any(builder in used for builder in builders)

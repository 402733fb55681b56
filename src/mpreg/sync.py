"""The client for scripts and notebooks: the asyncio client in a thread of its own, each call waited for.

    with mpreg.sync.connect("tcp://127.0.0.1:6668") as client:
        client.call("greet", "world")

Calls may come from many threads at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

from mpreg import client as asynchronous
from mpreg.client import ClientSettings, CommandBuilder, command
from mpreg.client.cache_sync import Cache
from mpreg.client.connecting import DEFAULT_URL
from mpreg.client.queue_sync import SyncQueue
from mpreg.client.sources import Target
from mpreg.client.subscription import BUFFER_MAX, OnFull, OnSlow
from mpreg.errors import TimedOut, TransportError
from mpreg.loop_thread import LoopThread
from mpreg.transport import TlsFiles
from mpreg.wire.queues import Scheduled
from mpreg.wire.received import Message

__all__ = ["Cache", "Client", "Subscription", "command", "connect"]

T = TypeVar("T")


def _closed(state_changed: bool | None) -> TransportError:
    return TransportError("TRANSPORT_CLOSED", "This client is closed", state_changed=state_changed)


def connect(
    target: Target = DEFAULT_URL,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    tls: TlsFiles | None = None,
    settings: ClientSettings | None = None,
    **changes: Any,
) -> Client:
    """As `mpreg.connect`; the client is connected when this returns. Close it, or use it with `with`."""
    loop = LoopThread(_closed)
    try:
        connecting = asynchronous.connect(target, token=token, headers=headers, tls=tls, settings=settings, **changes)
        return Client(loop, loop.run(connecting.connected()))
    except BaseException:
        loop.stop()
        raise


class Client:
    """Made by `connect`."""

    def __init__(self, loop: LoopThread, client: asynchronous.Client) -> None:
        self._loop = loop
        self._client = client

    @overload
    def call(
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
    def call(
        self,
        fun: str,
        /,
        *args: Any,
        locs: Iterable[str] = ...,
        timeout: float | None = ...,
        result_type: Any = ...,
        **kwargs: Any,
    ) -> Any: ...

    def call(
        self,
        fun: str,
        /,
        *args: Any,
        locs: Iterable[str] = (),
        timeout: float | None = None,
        result_type: Any = Any,
        **kwargs: Any,
    ) -> Any:
        """The result of one function. Ctrl-C cancels it, on the node too."""
        return self._loop.run(
            self._client.call(fun, *args, locs=locs, timeout=timeout, result_type=result_type, **kwargs)
        )

    @overload
    def request(self, wanted: CommandBuilder[T], /, *, timeout: float | None = ...) -> T: ...

    @overload
    def request(self, wanted: Sequence[CommandBuilder[Any]], /, *, timeout: float | None = ...) -> list[Any]: ...

    def request(
        self, wanted: CommandBuilder[Any] | Sequence[CommandBuilder[Any]], /, *, timeout: float | None = None
    ) -> Any:
        """The results of commands that may use each other's, in one round trip."""
        return self._loop.run(self._client.request(wanted, timeout=timeout))

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        reply_to: str | None = None,
        ack: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Publish a message; with `ack` it returns when a node has it."""
        self._loop.run(
            self._client.publish(topic, payload, headers=headers, reply_to=reply_to, ack=ack, timeout=timeout)
        )

    @overload
    def subscribe(
        self,
        *patterns: str,
        payload_type: type[T],
        exact: bool = ...,
        backlog: float | None = ...,
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
        buffer: int = BUFFER_MAX,
        on_full: OnFull = "drop_oldest",
        on_slow: OnSlow = "disconnect",
    ) -> Subscription[Any]:
        """Messages whose topic matches a pattern: `with client.subscribe("orders.#") as messages`, then
        `for message in messages`, or `messages.get(timeout=1)`. It has begun when this returns."""

        async def begun() -> asynchronous.Subscription[Any]:
            return await self._client.subscribe(
                *patterns,
                payload_type=payload_type,
                exact=exact,
                backlog=backlog,
                buffer=buffer,
                on_full=on_full,
                on_slow=on_slow,
            )

        return Subscription(self._loop, self._loop.run(begun()))

    def query(
        self, topic: str, payload: Any, *, headers: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Message[Any]:
        """Publish a question and return the first answer. Raises `TIMEOUT_EXCEEDED` when nobody answers."""
        return self._loop.run(self._client.query(topic, payload, headers=headers, timeout=timeout))

    def reply(self, message: Message[Any], payload: Any, *, headers: Mapping[str, Any] | None = None) -> None:
        """Answer a question. `ValueError` if the message is none."""
        self._loop.run(self._client.reply(message, payload, headers=headers))

    def cache(self, namespace: str, *, near: int = 0, version: str = "v1") -> Cache:
        """The cache of the cluster, one namespace of it."""
        return Cache(self._loop.run, self._client.cache(namespace, near=near, version=version))

    def queue(self, name: str) -> SyncQueue:
        """A queue by its name; it need not exist yet."""
        return SyncQueue(self._loop, self._client.queue(name))

    def schedule(self, cron: str, queue: str, payload: Any, **how: Any) -> Scheduled:
        """As `Client.schedule`."""
        return self._loop.run(self._client.schedule(cron, queue, payload, **how))

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def url(self) -> str | None:
        """Of the node that this client is connected to at the moment."""
        return self._client.url

    @property
    def calls_open(self) -> int:
        """Sent and not answered."""
        return self._client.calls_open

    def close(self) -> None:
        """Calls of other threads fail with `TRANSPORT_CLOSED`. Closing twice is fine."""
        if self._loop.runs:
            try:
                self._loop.run(self._client.close())
            finally:
                self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._client)


class Subscription(Generic[T]):
    """Made by `Client.subscribe`. For one thread; `close` may come from another one and ends the iteration."""

    def __init__(self, loop: LoopThread, subscription: asynchronous.Subscription[T]) -> None:
        self._loop = loop
        self._subscription = subscription
        self._taken: deque[Message[T]] = deque()

    def __iter__(self) -> Iterator[Message[T]]:
        while True:
            try:
                message = self._next(None)
            except StopAsyncIteration:
                return
            yield message

    def get(self, timeout: float | None = None) -> Message[T]:
        """The next message. Raises `TIMEOUT_EXCEEDED` if none comes within so many seconds, `TRANSPORT_CLOSED` if the
        subscription or the client is closed."""
        try:
            return self._next(timeout)
        except StopAsyncIteration:
            raise TransportError("TRANSPORT_CLOSED", "This subscription is closed") from None

    def close(self) -> None:
        """Unsubscribe. What has come can still be read."""
        if self._loop.runs:
            self._loop.run(self._subscription.close())

    @property
    def dropped(self) -> int:
        """Messages left out because the buffer was full."""
        return self._subscription.dropped

    @property
    def invalid(self) -> int:
        """Messages left out because their payload is not of the type that was asked for."""
        return self._subscription.invalid

    @property
    def gaps(self) -> int:
        """Reconnects after which the node's backlog did not reach back to what was missed."""
        return self._subscription.gaps

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._subscription)

    def _next(self, timeout: float | None) -> Message[T]:
        if not self._taken:
            self._taken.extend(self._loop.run(self._batch(timeout)))
        return self._taken.popleft()

    async def _batch(self, timeout: float | None) -> list[Message[T]]:
        try:
            async with asyncio.timeout(timeout):
                return await self._subscription.batch()
        except TimeoutError:
            raise TimedOut("TIMEOUT_EXCEEDED", f"No message within {timeout:g} s") from None

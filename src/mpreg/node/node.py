"""What a program declares: its functions, and how it is reached."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

import msgspec

from mpreg.node.builtins import add_builtins
from mpreg.node.caching import Cached, cached
from mpreg.node.running import Running
from mpreg.node.settings import Settings
from mpreg.node.subscribers import handler_of
from mpreg.pubsub import Handler
from mpreg.rpc import Registry
from mpreg.store import Store
from mpreg.transport import Accept, Link

P = ParamSpec("P")
R = TypeVar("R")


class Node:
    """A program's functions, offered to others.

        node = Node("hello")

        @node.function
        def greet(name: str) -> str:
            return f"Hello, {name}!"

        if __name__ == "__main__":
            node.run()

    `run` serves until SIGTERM or SIGINT; inside a program that has an event loop, use `async with node:`.
    """

    def __init__(self, name: str = "", settings: Settings | None = None) -> None:
        settings = settings or Settings()
        name = name or settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self.settings = msgspec.structs.replace(settings, name=name)
        """May be changed until the node starts."""
        self._registry = Registry()
        self._running: Running | None = None
        self._is_stopping = False
        self._beside: list[AbstractAsyncContextManager[Any]] = []
        self._entered = AsyncExitStack()
        self._handlers: list[Handler] = []
        add_builtins(
            self._registry,
            lambda: self.name,
            self._describe,
            self._statistics,
            self._topic_rates,
            lambda: self._started().services,
        )

    @property
    def name(self) -> str:
        return self.settings.name

    @overload
    def function(self, call: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def function(
        self,
        /,
        *,
        name: str | None = None,
        locs: Iterable[str] = (),
        idempotent: bool = False,
        cache: Cached | float | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def function(
        self,
        call: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        locs: Iterable[str] = (),
        idempotent: bool = False,
        cache: Cached | float | None = None,
    ) -> Any:
        """Offer a function, sync or async; arguments are checked against its type hints.

        `locs` are the resources that a caller may ask for; `idempotent` allows a call to be repeated elsewhere when
        it is not known whether it ran. With `cache`, a TTL in seconds or `Cached`, a result is kept in the cluster's
        cache by the arguments, and computed once however many ask at the same time. Raises `ValueError` for a name
        that is taken or can't be one.
        """
        if call is not None:
            self._registry.add(call)
            self._tell_functions()
            return call

        def register(call: Callable[P, R]) -> Callable[P, R]:
            self._registry.add(call if cache is None else self._cached(call, cache, name), name, locs, idempotent)
            self._tell_functions()
            return call

        return register

    def _cached(self, call: Callable[..., Any], how: Cached | float, name: str | None) -> Callable[..., Any]:
        how = how if isinstance(how, Cached) else Cached(ttl=float(how))
        return cached(
            call,
            how,
            name,
            lambda: self._started().services.cache.cache,
            self._in_thread,
        )

    async def _in_thread(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return await self._started().services.threads.submit(call, args, kwargs)

    def subscriber(
        self, *patterns: str, exact: bool = False, concurrency: int = 1, buffer: int | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Call a function, sync or async, with every message whose topic matches a pattern.

        Its one argument is the message, or only the payload if it has the hint of a type other than `Message`; a
        payload of another type is logged and left out. One message at a time, in order, unless `concurrency` allows
        more. `buffer` messages may wait for it (by default what the settings say); then the oldest are dropped and
        counted. What it returns, unless None, answers a question (`Client.query`). Raises `ValueError` for a function
        that takes something else, `PUBSUB_INVALID_PATTERN` for a pattern that is none.
        """

        def register(call: Callable[P, R]) -> Callable[P, R]:
            if self._running is not None:
                raise RuntimeError(f"{self!r} runs already")
            default = self.settings.pubsub.handler_messages_max
            self._handlers.append(handler_of(call, patterns, exact, concurrency, buffer, default))
            return call

        return register

    def publish(
        self, topic: str, payload: Any, *, headers: Mapping[str, Any] | None = None, reply_to: str | None = None
    ) -> None:
        """Publish a message of the program's own, from the event loop or from any thread. Raises
        `PUBSUB_INVALID_TOPIC` or `PUBSUB_UNENCODABLE_PAYLOAD`, and `RuntimeError` if the node does not run."""
        self._started().services.pubsub.publish(topic, payload, headers=headers, reply_to=reply_to)

    def worker(
        self,
        queue: str,
        *,
        topics: str | Iterable[str] = "#",
        concurrency: int = 8,
        visibility: float | None = None,
        create: Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Hand the messages of a queue to a function, sync or async, up to `concurrency` at a time.

        Its one argument is the message (`mpreg.client.Message`), or only the payload if its hint is of another type.
        When it returns, the message is acknowledged; when it raises, the message is tried again later, and after
        `max_retries` a dead letter. Its lease is kept while it runs. `create` are settings with which the queue is made
        if it is not there; otherwise the worker waits until there is one. Raises `ValueError` for a function that takes
        something else.
        """

        def register(call: Callable[P, R]) -> Callable[P, R]:
            from mpreg.node.queue_workers import Worker

            patterns = (topics,) if isinstance(topics, str) else tuple(topics)
            self.beside(
                Worker(self, call, queue, patterns, concurrency, visibility, None if create is None else dict(create))
            )
            return call

        return register

    def beside(self, part: AbstractAsyncContextManager[Any]) -> None:
        """Something that lives as long as the node: entered once it can be reached, left before it takes leave."""
        self._beside.append(part)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, with what the environment says over this node's settings."""
        from mpreg.node.run import run

        run(self)

    async def start(self) -> None:
        """Listen. Raises what stands in the way, and leaves nothing behind then."""
        if self._running is not None:
            raise RuntimeError(f"{self!r} runs already")
        running = Running(self.settings, self._registry, self._handlers)
        await running.start()
        self._running = running
        try:
            for part in self._beside:
                await self._entered.enter_async_context(part)
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop accepting, let what runs finish for the grace time, take leave, close."""
        running = self._running
        if running is None or self._is_stopping:
            return
        self._is_stopping = True  # until the end it is a node to what finishes meanwhile, which may publish
        running.stop_accepting()
        try:
            await self._entered.aclose()
        finally:
            try:
                await running.stop(self.settings.grace_s if grace_s is None else grace_s)
            finally:
                self._running = None
                self._is_stopping = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def failed(self) -> None:
        """Raises what has ended for good and can't be done without: the server of the embedded store."""
        await self._started().failed()

    @property
    def listeners(self) -> dict[str, str]:
        """Where the running node can be reached, by scheme: `{"ws": "ws://127.0.0.1:6666", …}`."""
        return self._started().listeners

    @property
    def store(self) -> Store | None:
        """The store of the running node; `None` if its settings turn it off."""
        return self._started().store

    @property
    def store_url(self) -> str | None:
        return self._started().store_url

    def attach(self, accept: Accept) -> Link:
        """A link to this node within the process, without sockets: `connect(node)` uses it."""
        return self._started().attach(accept)

    def __repr__(self) -> str:
        return f"<Node {self.name}{'' if self._running is None else ' running'}>"

    def _tell_functions(self) -> None:
        """The other nodes of the cluster hear of a function that comes while the node runs."""
        clustering = None if self._running is None else self._running.services.clustering
        if clustering is not None:
            clustering.cluster.offers_changed()

    def _started(self) -> Running:
        if self._running is None:
            raise RuntimeError(f"{self!r} does not run")
        return self._running

    def _describe(self) -> dict[str, Any]:
        return self._started().describe()

    def _statistics(self) -> dict[str, Any]:
        return self._started().statistics()

    async def _topic_rates(self, pattern: str, seconds: float, depth: int) -> dict[str, Any]:
        return await self._started().services.pubsub.topic_rates(pattern, seconds, depth)

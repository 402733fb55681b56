"""What `@node.worker` declares: a function that the messages of a queue are handed to, for as long as the node runs."""

from __future__ import annotations

import asyncio
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from mpreg.client import connect
from mpreg.client.queue_message import Message
from mpreg.errors import MpregError
from mpreg.node.subscribers import Taken, taken_by

if TYPE_CHECKING:
    from mpreg.client import Client
    from mpreg.node.node import Node

log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
"""A queue that is not there (yet), or a store that is gone, is asked for again after so long."""
CONCURRENCY_MAX: Final = 1_000


class Worker:
    """Lives beside its node: it takes messages by a client within the process. At the node's end it takes no more, lets
    what runs finish within the grace time, and gives back what it did not begin."""

    def __init__(
        self,
        node: Node,
        call: Callable[..., Any],
        queue: str,
        topics: tuple[str, ...],
        concurrency: int,
        visibility_s: float | None,
        create: dict[str, Any] | None,
    ) -> None:
        name = getattr(call, "__qualname__", type(call).__qualname__)
        if not callable(call):
            raise ValueError(f"{name}: not callable")
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise ValueError(f"{name}: concurrency is 1 to {CONCURRENCY_MAX}")
        taken = _taken_by(name, call)
        self.name = name
        self._node = node
        self._queue = queue
        self._topics = topics
        self._concurrency = concurrency
        self._visibility_s = visibility_s
        self._create = create
        self._payload_type = taken.payload_type
        self._handle = _handler(call, taken.is_async, taken.takes_message)
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._client = await connect(self._node)
        self._task = asyncio.create_task(self._work(self._client), name=f"mpreg-worker-{self.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        assert self._client is not None
        self._task.cancel()
        await asyncio.wait([self._task], timeout=self._node.settings.grace_s)
        if not self._task.done():
            log.warning("%s did not finish within %g s; its messages come back", self.name, self._node.settings.grace_s)
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._client.close()

    async def _work(self, client: Client) -> None:
        queue = client.queue(self._queue)
        told = ""
        while True:
            try:
                if self._create is not None:
                    await queue.create(**self._create)
                await queue.work(
                    self._handle,
                    self._topics,
                    concurrency=self._concurrency,
                    payload_type=self._payload_type,
                    visibility=self._visibility_s,
                )
            except MpregError as error:
                if error.code != told:
                    log.warning("%s has no work from %r: %s", self.name, self._queue, error)
                told = error.code
            await asyncio.sleep(AGAIN_S)


def _taken_by(name: str, call: Callable[..., Any]) -> Taken:
    """As a subscriber's; but a queue's message is no value that could be decoded, so its hint is looked at first."""
    target = call if inspect.isroutine(call) else type(call).__call__
    hint: Any = None
    try:
        hints = typing.get_type_hints(target)
        taken = list(inspect.signature(call).parameters)
        hint = hints.get(taken[0]) if len(taken) == 1 else None
    except (NameError, TypeError, ValueError):
        hint = None
    if hint is Message or typing.get_origin(hint) is Message:
        return Taken(inspect.iscoroutinefunction(target), True, next(iter(typing.get_args(hint)), Any))
    return taken_by(name, call, Message)


def _handler(
    call: Callable[..., Any], is_async: bool, takes_message: bool
) -> Callable[[Message[Any]], Awaitable[None]]:
    async def handle(message: Message[Any]) -> None:
        argument = message if takes_message else message.payload
        if is_async:
            await call(argument)
        else:
            await asyncio.to_thread(call, argument)

    return handle

"""How requests are answered that don't end in the turn in which they came, and how they are refused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mpreg.errors import MpregError, ProtocolError, QueueError, ResourceError
from mpreg.queues.names import invalid
from mpreg.transport.session import Session
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import error_response
from mpreg.wire.message import Message, u_of
from mpreg.wire.queues import MANY_MAX

log = logging.getLogger(__name__)

Handler = Callable[[Session, Any, Encoding], None]
CLOSE_S: Final = 2.0


def refuse(session: Session, error: MpregError, request: Message, encoding: Encoding) -> None:
    if not session.closed:
        session.send(error_response(error, u_of(request)), encoding)


def stale(message_id: str) -> QueueError:
    return QueueError(
        "QUEUE_STALE_RECEIPT",
        f"the message {message_id[:100]!r} is not in this subscriber's hands (any more); nothing was changed",
        message_id=message_id[:100],
    )


def check_many(messages: list[Any]) -> None:
    if not messages or len(messages) > MANY_MAX:
        raise invalid("messages", f"are 1 to {MANY_MAX}, not {len(messages)}", limit=MANY_MAX)


class Tasks:
    """Everything of the service that is under way, so that it ends with it."""

    def __init__(self, running_max: int) -> None:
        self._running_max = running_max
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def handler(self, work: Callable[..., Coroutine[Any, Any, None]], *more: Any) -> Handler:
        """A handler that runs `work` beside others and says what went wrong."""

        def handle(session: Session, request: Any, encoding: Encoding) -> None:
            if len(self._tasks) >= self._running_max:
                most = self._running_max
                raise ResourceError("RESOURCE_EXHAUSTED", f"{most} requests of queues are under way", limit=most)
            self.spawn(_answered(work(session, request, encoding, *more), session, request, encoding))

        return handle

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.own(self._loop.create_task(work))

    def own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _answered(work: Coroutine[Any, Any, None], session: Session, request: Message, encoding: Encoding) -> None:
    try:
        await work
    except MpregError as error:
        with contextlib.suppress(MpregError):
            refuse(session, error, request, encoding)
    except Exception:
        log.exception("A message of queues could not be handled: %s", type(request).__name__)
        failed = ProtocolError("PROTOCOL_INTERNAL_ERROR", "The node failed; its log says why", state_changed=None)
        refuse(session, failed, request, encoding)

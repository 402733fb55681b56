"""Takes the first step of a coroutine at once, and gives it a task of its own only if it has to wait.

Most functions answer without waiting; for them a task, its turn of the loop and its bookkeeping cost more than the
call. The first step runs inside a spare task, and a coroutine that waits goes on in that very task: so
`asyncio.current_task`, `asyncio.timeout` and context variables mean the same before and after the first wait.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from asyncio import AbstractEventLoop, CancelledError, Future, Task
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Coroutine, Generator
from sys import getrefcount
from types import coroutine
from typing import Any

Work = Coroutine[Any, Any, None]


class Starter:
    """Of one event loop; called from its callbacks. `close` ends the spare task."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        self._spare: _Spare | None = None

    def start(self, work: Work) -> Task[None] | None:
        """The task in which `work` goes on, or None if it is finished."""
        spare = self._spare
        if spare is None or spare.task.cancelling():
            spare = self._spare = _Spare(self._loop, self._context)
        loop = self._loop
        try:
            _enter_task(loop, spare.task)
        except RuntimeError:  # within the step of another task
            return loop.create_task(work, context=self._context.copy())
        try:
            waits_for = spare.run(spare.step, work)
        except CancelledError:
            _leave_task(loop, spare.task)
            self._drop()
            return None
        except BaseException:
            _leave_task(loop, spare.task)
            self._drop()
            raise
        _leave_task(loop, spare.task)
        if waits_for is _FINISHED:
            if spare.is_touched(self._context):
                self._drop()
            return None
        self._spare = None
        return spare.adopt(waits_for)

    def close(self) -> None:
        self._drop()

    def _drop(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.task.cancel()
            del spare.task  # the task refers to the spare, too


class _Spare(Coroutine[Any, Any, None]):
    """What a spare task runs: nothing, until it is given a coroutine that has taken its first step."""

    __slots__ = ("_is_adopted", "_parked", "_references", "_steps", "_waits_for", "context", "run", "step", "task")

    def __init__(self, loop: AbstractEventLoop, context: contextvars.Context) -> None:
        self.context = context.copy()
        self.run = self.context.run
        self._is_adopted = False
        self._steps = self._run_one_after_another()
        self.step = self._steps.send
        """Takes the first step of a coroutine: what it waits for, or `_FINISHED`."""
        self.step(None)
        self._parked: Future[None] | None = None
        self._waits_for: Any = _HANDED_OVER
        self.task: Task[None] = loop.create_task(self, context=self.context)
        self._references = getrefcount(self.task)

    def is_touched(self, context: contextvars.Context) -> bool:
        """Did a finished first step leave something in the task: a variable, a callback, someone who remembers it?

        The asyncio module itself remembers every task once, weakly.
        """
        task = self.task
        return (
            self.context != context
            or getrefcount(task) > self._references + 1
            or weakref.getweakrefcount(task) > 1
            or task._callbacks is not None  # asyncio has no other way to see them
        )

    @coroutine
    def _run_one_after_another(self) -> Generator[Any, Any, None]:
        """A coroutine that ends within another one needs no exception to say so, which halves what its start costs."""
        while not self._is_adopted:
            work = yield _FINISHED
            yield from work

    def adopt(self, waits_for: Any) -> Task[None]:
        """Go on where the first step stopped: what it waits for is handed to the task."""
        self._is_adopted = True
        self._waits_for = waits_for
        if self._parked is not None and not self._parked.done():  # it is done if the first step cancelled its own task
            self._parked.set_result(None)
        task = self.task
        del self.task
        return task

    # What a task calls.

    def send(self, value: None) -> Any:
        if self._waits_for is _HANDED_OVER:
            if self._is_adopted:
                return self._steps.send(value)
            self._parked = self.task.get_loop().create_future()
            self._parked._asyncio_future_blocking = True  # as `await` does
            return self._parked
        waits_for, self._waits_for = self._waits_for, _HANDED_OVER
        return waits_for

    def throw(self, error: Any, value: Any = None, trace: Any = None) -> Any:
        if not self._is_adopted:
            raise error
        waits_for, self._waits_for = self._waits_for, _HANDED_OVER
        if asyncio.isfuture(waits_for) and waits_for.cancel():
            return waits_for
        return self._steps.throw(error)

    def close(self) -> None:
        self._steps.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("only a task runs this")


_HANDED_OVER = object()
_FINISHED = object()

"""An event loop in virtual time: when nothing is ready to run, time jumps to the next timer. What is awaited for an
hour comes at once, and in the same order every time.

Each callback belongs to the machine (`HERE`) in whose context it was made, so that one machine can stand still or be
gone while the others go on. Threads that work are waited for in real time before the clock moves.
"""

from __future__ import annotations

import asyncio
import heapq
import operator
import selectors
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, Final, cast

from mpreg.testing.rules import RuleBroken

HERE: Final[ContextVar[str]] = ContextVar("mpreg_testing_machine", default="")
"""The simulated machine on which this code runs; empty for the test itself."""
THREADS_POLL_S: Final = 0.001


class VirtualLoop(asyncio.SelectorEventLoop):
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    """What asyncio's own loop keeps: the callbacks that can run, and a heap of those that have a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.is_busy: Callable[[], bool] = lambda: False
        """Do threads work whose results will come into this loop?"""
        super().__init__(_Selector(self))
        self._tasks_of: dict[str, weakref.WeakSet[asyncio.Task[Any]]] = {}
        self._held: dict[str, list[asyncio.Handle]] = {}
        self.set_task_factory(cast(Any, self._make_task))

    def time(self) -> float:
        return self.now

    def hold(self, machine: str) -> None:
        """Nothing of this machine runs until `release`."""
        self._held[machine] = self._take(machine)

    def release(self, machine: str) -> None:
        for handle in self._held.pop(machine, []):
            if isinstance(handle, asyncio.TimerHandle):
                heapq.heappush(self._scheduled, handle)
            else:
                self._ready.append(handle)

    def discard(self, machine: str) -> list[asyncio.Task[Any]]:
        """Nothing of this machine runs any more. Returns its tasks, which somebody has to cancel in the end."""
        self._held.pop(machine, None)
        self._take(machine)
        return list(self._tasks_of.pop(machine, ()))

    def _run_once(self) -> None:
        """What was made meanwhile for machines that stand still waits with the rest."""
        for machine, held in self._held.items():
            held += self._take(machine)
        run_once = cast(Any, super())._run_once
        run_once()

    def _take(self, machine: str) -> list[asyncio.Handle]:
        ready = [handle for handle in self._ready if _machine_of(handle) == machine]
        timers = [handle for handle in self._scheduled if _machine_of(handle) == machine]
        if ready:
            others = [handle for handle in self._ready if _machine_of(handle) != machine]
            self._ready.clear()
            self._ready.extend(others)
        if timers:
            self._scheduled[:] = [handle for handle in self._scheduled if _machine_of(handle) != machine]
            heapq.heapify(self._scheduled)
        return [*ready, *timers]

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        machine = (options.get("context") or copy_context()).get(HERE, "")
        self._tasks_of.setdefault(machine, weakref.WeakSet()).add(task)
        return task


_context_of = operator.attrgetter("_context")


def _machine_of(handle: asyncio.Handle) -> str:
    machine: str = _context_of(handle).get(HERE, "")
    return machine


class _Selector(selectors.DefaultSelector):
    """The loop asks how long to wait for sockets: that is when time passes."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        if self._loop.is_busy():
            return super().select(THREADS_POLL_S)
        found = super().select(0)
        if found:
            return found
        if timeout is None:
            raise RuleBroken("Everything waits, and nothing will ever happen")
        self._loop.now += timeout
        return found

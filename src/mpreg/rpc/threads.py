"""A bounded pool of daemon threads for synchronous functions.

Unlike the standard executor, a thread that never returns does not keep the process from ending, and results of many
threads reach the loop in one wake-up.
"""

from __future__ import annotations

import contextvars
import threading
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from mpreg.errors import ResourceError


class _Job(NamedTuple):
    future: Future[Any]
    context: contextvars.Context
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Threads:
    """`threads_max` run at once, `waiting_max` wait; the next is refused with `RESOURCE_EXHAUSTED`."""

    def __init__(self, loop: AbstractEventLoop, threads_max: int = 32, waiting_max: int = 10_000) -> None:
        self._loop = loop
        self._threads_max = threads_max
        self._waiting_max = waiting_max
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._waiting = 0
        self._threads = 0
        self._busy = 0
        self._done: deque[tuple[Future[Any], Any, BaseException | None]] = deque()
        self._lock = threading.Lock()  # of the counters and `_woken`
        self._woken = False

    @property
    def busy(self) -> int:
        """Threads in which a function runs, wanted or not any more."""
        return self._busy

    @property
    def unsettled(self) -> int:
        """Calls whose results have not come to the loop."""
        with self._lock:
            return self._waiting + self._busy + len(self._done)

    @property
    def is_free(self) -> bool:
        """Would another call run at once?"""
        return self._waiting + self._busy < self._threads_max

    def submit(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        """Cancelling the future keeps a call that still waits from starting; one that runs goes on unheard."""
        with self._lock:
            if self._waiting >= self._waiting_max:
                raise ResourceError(
                    "RESOURCE_EXHAUSTED",
                    f"{self._waiting_max} calls are waiting for one of {self._threads_max} threads",
                    limit=self._waiting_max,
                )
            self._waiting += 1
            more = self._waiting + self._busy > self._threads and self._threads < self._threads_max
        if more:
            self._start_thread()
        future = self._loop.create_future()
        self._jobs.put(_Job(future, contextvars.copy_context(), call, args, kwargs))
        return future

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name=f"mpreg-call-{self._threads + 1}", daemon=True).start()
            self._threads += 1
        except RuntimeError as problem:  # the system has no more threads
            if self._threads:
                return  # the call waits for one that there is
            with self._lock:
                self._waiting -= 1
            raise ResourceError("RESOURCE_EXHAUSTED", f"No thread to run the call in: {problem}") from None

    def close(self) -> None:
        """Idle threads end; busy ones when their function returns."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                self._waiting -= 1
                self._busy += 1
            result, error = None, None
            if not job.future.cancelled():
                try:
                    result = job.context.run(job.call, *job.args, **job.kwargs)
                except BaseException as raised:  # noqa: BLE001 - it belongs to the caller, who is on the loop
                    error = raised
            self._finish(job.future, result, error)
            del job, result, error

    def _finish(self, future: Future[Any], result: Any, error: BaseException | None) -> None:
        with self._lock:
            self._busy -= 1
            self._done.append((future, result, error))
            wake = not self._woken
            self._woken = True
        if wake:
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._done.clear()

    def _deliver(self) -> None:
        with self._lock:
            self._woken = False
        while self._done:
            future, result, error = self._done.popleft()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(result)
            elif isinstance(error, StopIteration):  # a future refuses it
                future.set_exception(RuntimeError("the function raised StopIteration"))
            else:
                future.set_exception(error)

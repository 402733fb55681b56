"""An event loop in a thread of its own, for the facades that wait for each call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

T = TypeVar("T")

Closed = Callable[[bool | None], Exception]
"""The error for who comes after `stop`, or still waits then; it says whether something may have happened."""


class LoopThread:
    """A daemon thread, which does not keep the process from ending."""

    def __init__(self, closed: Closed) -> None:
        self._closed = closed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mpreg-sync", daemon=True)
        self._thread.start()
        self.runs = True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises. An exception in the waiting thread (Ctrl-C) cancels it."""
        if not self.runs:
            work.close()
            raise self._closed(False)
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise self._closed(False) from None
        try:
            return future.result()
        except CancelledError:
            raise self._closed(None) from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self.runs = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(asyncio.sleep(0))  # what came in the last moment becomes a task, to be ended
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks))
            self._loop.close()

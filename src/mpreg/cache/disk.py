"""L2: what a node keeps on its own disk. The file belongs to one thread; all that waits is done there in one go.

A disk that is full or broken costs hits, never an answer: the level empties itself, and if even that fails it stays
empty. A value that was removed is gone when `remove` returns, whatever the disk says.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

import lmdb

from mpreg.cache.bounds import Bounds
from mpreg.cache.disk_file import DiskFile, Gone
from mpreg.cache.entry import Entry
from mpreg.cache.tier import OnEvicted

log = logging.getLogger(__name__)

WAITING_MAX: Final = 4_096
"""Beyond so many, a get is a miss and a put is not done; a remove always is."""
BATCH_MAX: Final = 256

Work = Callable[[DiskFile], Any]


class _Job:
    __slots__ = ("answer", "failed", "result", "work")

    def __init__(self, work: Work, failed: Any, answer: asyncio.Future[Any]) -> None:
        self.work = work
        self.failed = failed
        self.result = failed
        self.answer = answer


class DiskLevel:
    """Made by `open`."""

    def __init__(self, file: DiskFile, thread: ThreadPoolExecutor, on_evicted: OnEvicted) -> None:
        self.problems = 0
        """How often the level was emptied because the disk failed."""
        self.dropped = 0
        """Gets and puts that were not done, for too many waited."""
        self._file: DiskFile | None = file
        self._thread = thread
        self._on_evicted = on_evicted
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Job] = deque()
        self._working: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, path: Path, *, entries_max: int, bytes_max: int, on_evicted: OnEvicted) -> Self:
        """What an earlier run left there is served, if it can be trusted.

        Raises `CONFIG_INVALID` if another node keeps its cache there, or nobody can.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="mpreg-cache-disk")
        try:
            loop = asyncio.get_running_loop()
            file = await loop.run_in_executor(thread, DiskFile, path, Bounds(entries_max, bytes_max))
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(file, thread, on_evicted)

    async def get(self, key: bytes, now_ms: int) -> Entry | None:
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            return None
        found: Entry | None = await self._do(lambda file: file.get(key, now_ms), None)
        return found

    async def put(self, key: bytes, entry: Entry) -> None:
        """What is dropped here is dropped whole: an older value of the key goes, too."""
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            await self.remove(key)
        else:
            await self._do(lambda file: file.put(key, entry), None)

    async def remove(self, key: bytes) -> bool:
        return bool(await self._do(lambda file: file.remove(key), False))

    async def keys(self) -> list[bytes]:
        found: list[bytes] = await self._do(DiskFile.keys, [])
        return found

    async def clear(self) -> None:
        await self._do(DiskFile.clear, None)

    async def size(self) -> tuple[int, int]:
        """Entries, and the bytes of their values."""
        entries, octets = await self._do(lambda file: (len(file), file.bytes), (0, 0))
        return entries, octets

    async def close(self) -> None:
        """After what waits. Nothing may be asked of it then."""
        await self._do(self._close, None)
        await self._loop.run_in_executor(None, self._thread.shutdown)

    def _close(self, file: DiskFile) -> None:
        file.close()
        self._file = None

    async def _do(self, work: Work, failed: Any) -> Any:
        if self._file is None:
            return failed
        job = _Job(work, failed, self._loop.create_future())
        self._waiting.append(job)
        if self._working is None:
            self._start()
        return await job.answer

    def _start(self) -> None:
        jobs = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        self._working = self._loop.run_in_executor(self._thread, self._work, jobs)
        self._working.add_done_callback(lambda _: self._worked(jobs))

    def _worked(self, jobs: list[_Job]) -> None:
        self._working = None
        gone: Gone = []
        if self._file is not None:
            gone, self._file.gone = self._file.gone, []
        for job in jobs:
            if not job.answer.done():  # its caller may have been cancelled
                job.answer.set_result(job.result)
        for key, why in gone:
            self._on_evicted(key, why)
        if self._waiting:
            self._start()

    # In the thread.

    def _work(self, jobs: list[_Job]) -> None:
        for job in jobs:
            if self._file is None:
                return
            try:
                job.result = job.work(self._file)
            except (lmdb.Error, OSError, ValueError) as problem:
                self._begin_anew(problem)

    def _begin_anew(self, problem: Exception) -> None:
        """What could not be written or removed must not be served, so nothing is."""
        self.problems += 1
        log.warning("The cache on disk empties itself: %s", problem)
        assert self._file is not None
        try:
            self._file.clear()
        except (lmdb.Error, OSError) as worse:
            log.error("The cache on disk is given up: %s", worse)
            self._file.abandon()
            self._file = None

"""arq: jobs in a sorted set that the worker polls, as often as is sensible."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from bench.roles.queue import BODY, Done, Send, nothing_between

broker = nothing_between
POLL_S = 0.01
TEXT = BODY.decode()


def _settings(url: str) -> Any:
    from arq.connections import RedisSettings

    parts = urlsplit(url)
    return RedisSettings(host=parts.hostname or "", port=parts.port or 0, max_connections=200)


async def consume(done: Done, consumers: int, url: str, name: str, **_: Any) -> object:
    from arq.worker import Worker, func

    logging.disable(logging.INFO)

    async def task(context: dict[str, Any], text: str) -> None:
        done.add()

    tasks = []
    for _number in range(consumers):
        worker = Worker(
            functions=[func(task, name="task")],
            redis_settings=_settings(url),
            queue_name=name,
            poll_delay=POLL_S,
            max_jobs=64,
            keep_result=0,
            handle_signals=False,
        )
        tasks.append(asyncio.create_task(worker.async_run()))
    await asyncio.sleep(0.5)
    return tasks


@asynccontextmanager
async def producer(url: str, name: str, **_: Any) -> AsyncIterator[Send]:
    from arq import create_pool

    pool = await create_pool(_settings(url), default_queue_name=name)

    async def send() -> int:
        await pool.enqueue_job("task", TEXT)
        return 1

    yield send
    await pool.aclose()

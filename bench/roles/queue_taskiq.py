"""taskiq over a Redis stream: the message is a task's argument."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.roles.queue import BODY, Done, Send, nothing_between

broker = nothing_between
TEXT = BODY.decode()


def _broker(url: str, name: str, done: Done | None) -> Any:
    from taskiq_redis import RedisStreamBroker

    logging.disable(logging.INFO)
    made = RedisStreamBroker(url, queue_name=name)

    @made.task(task_name="task")
    async def task(text: str) -> None:
        assert done is not None
        done.add()

    return made, task


async def consume(done: Done, consumers: int, url: str, name: str, **_: Any) -> object:
    from taskiq.api import run_receiver_task

    tasks = []
    for _number in range(consumers):
        made, _task = _broker(url, name, done)
        made.is_worker_process = True
        tasks.append(asyncio.create_task(run_receiver_task(made, max_async_tasks=64, run_startup=True)))
    await asyncio.sleep(1)
    return tasks


@asynccontextmanager
async def producer(url: str, name: str, **_: Any) -> AsyncIterator[Send]:
    made, task = _broker(url, name, None)
    await made.startup()

    async def send() -> int:
        await task.kiq(TEXT)
        return 1

    yield send
    await made.shutdown()

"""dramatiq over Redis: sends are synchronous, so each is one in flight; workers are threads."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.roles.queue import BODY, Done, Send, nothing_between

broker = nothing_between
TEXT = BODY.decode()
THREADS = 8


def _actor(url: str, name: str, done: Done | None) -> Any:
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    logging.disable(logging.INFO)
    made = RedisBroker(url=url)
    dramatiq.set_broker(made)

    @dramatiq.actor(queue_name=name.replace(".", "-"))
    def task(text: str) -> None:
        assert done is not None
        done.add()

    return made, task


async def consume(done: Done, consumers: int, url: str, name: str, **_: Any) -> object:
    import dramatiq

    made, _task = _actor(url, name, done)
    worker = dramatiq.Worker(made, worker_threads=THREADS)
    worker.start()
    return worker


@asynccontextmanager
async def producer(url: str, name: str, **_: Any) -> AsyncIterator[Send]:
    _, task = _actor(url, name, None)

    async def send() -> int:
        task.send(TEXT)
        return 1

    yield send

"""taskiq-redis: a task through a list, its result polled as a key every millisecond."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from bench.load import obey
from bench.muf import DATA
from bench.role import Orders

TEXT = DATA.decode()
POLL_S = 0.001


def broker(url: str) -> Any:
    from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

    made = ListQueueBroker(url).with_result_backend(RedisAsyncResultBackend(url, result_ex_time=30))

    @made.task(task_name="same")
    async def same(text: str) -> str:
        return text

    return made


async def serve(orders: Orders, url: str, socket: str) -> None:
    from taskiq.api import run_receiver_task

    made = broker(url)
    made.is_worker_process = True
    worker = asyncio.create_task(run_receiver_task(made, run_startup=True))
    orders.answer(ready=True)
    await orders.ended()
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker
    await made.shutdown()


async def ask(orders: Orders, url: str, socket: str) -> None:
    made = broker(url)
    await made.startup()
    task = made.find_task("same")

    async def call() -> None:
        sent = await task.kiq(TEXT)
        assert (await sent.wait_result(check_interval=POLL_S, timeout=10)).return_value == TEXT

    orders.answer(ready=True)
    await obey(orders, call)
    await made.shutdown()

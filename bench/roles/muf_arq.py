"""arq: jobs in a sorted set that the worker polls; both poll as often as is sensible."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from urllib.parse import urlsplit

from bench.load import obey
from bench.muf import DATA
from bench.role import Orders

POLL_S = 0.005
TEXT = DATA.decode()


async def same(context: dict[str, Any], text: str) -> str:
    return text


def settings(url: str) -> Any:
    from arq.connections import RedisSettings

    parts = urlsplit(url)
    return RedisSettings(host=parts.hostname or "", port=parts.port or 0, max_connections=200)


async def serve(orders: Orders, url: str, socket: str) -> None:
    from arq.worker import Worker

    worker = Worker(
        functions=[same],
        redis_settings=settings(url),
        poll_delay=POLL_S,
        max_jobs=64,
        handle_signals=False,
        keep_result=30,
    )
    task = asyncio.create_task(worker.async_run())
    orders.answer(ready=True)
    await orders.ended()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task


async def ask(orders: Orders, url: str, socket: str) -> None:
    from arq import create_pool

    pool = await create_pool(settings(url))

    async def call() -> None:
        job = await pool.enqueue_job("same", TEXT)
        assert job is not None
        assert await job.result(timeout=10, poll_delay=POLL_S) == TEXT

    orders.answer(ready=True)
    await obey(orders, call)
    await pool.aclose()

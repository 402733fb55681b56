"""A list-based RPC with redis-py: RPUSH to the backend's list, BLPOP from the call's own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import redis.asyncio

from bench.load import obey
from bench.muf import DATA
from bench.role import Orders

WORKERS = 64


def client(socket: str) -> Any:
    return redis.asyncio.Redis(unix_socket_path=socket, max_connections=2 * WORKERS + 8)


async def serve(orders: Orders, url: str, socket: str) -> None:
    connection = client(socket)

    async def work() -> None:
        while True:
            _, job = await connection.blpop(["jobs"], 0)
            id, _, data = job.partition(b":")
            async with connection.pipeline(transaction=False) as pipe:
                pipe.rpush(b"answer:" + id, data)
                pipe.expire(b"answer:" + id, 30)
                await pipe.execute()

    tasks = [asyncio.create_task(work()) for _ in range(WORKERS)]
    await connection.ping()
    orders.answer(ready=True)
    await orders.ended()
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)
    await connection.aclose()


async def ask(orders: Orders, url: str, socket: str) -> None:
    connection = client(socket)
    numbers = itertools.count()

    async def call() -> None:
        id = b"%d" % next(numbers)
        await connection.rpush("jobs", id + b":" + DATA)
        _, answer = await connection.blpop([b"answer:" + id], 5)
        assert answer == DATA

    orders.answer(ready=True)
    await obey(orders, call)
    await connection.aclose()

"""nats-py and JetStream, with file storage. Its `ack` is not answered; `confirmed` takes the one that is, like ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.js.api import ConsumerConfig, StorageType

from bench.roles.queue import BODY, Done, Send, nothing_between

broker = nothing_between
FETCH = 100


async def consume(done: Done, consumers: int, url: str, name: str, confirmed: bool = False, **_: Any) -> object:
    setup = await nats.connect(url)
    await setup.jetstream().add_stream(name=name, subjects=[f"{name}.t"], storage=StorageType.FILE)

    async def one() -> None:
        connection = await nats.connect(url)
        config = ConsumerConfig(max_ack_pending=20_000)
        pulled = await connection.jetstream().pull_subscribe(f"{name}.t", durable="d", config=config)
        while True:
            with contextlib.suppress(nats.errors.TimeoutError, asyncio.TimeoutError):
                messages = await pulled.fetch(FETCH, timeout=0.5)
                if confirmed:
                    await asyncio.gather(*(message.ack_sync(timeout=10) for message in messages))
                    done.add(len(messages))
                    continue
                for message in messages:
                    await message.ack()
                    done.add()

    tasks = [asyncio.create_task(one()) for _ in range(consumers)]
    await asyncio.sleep(0.5)
    return tasks


@asynccontextmanager
async def producer(url: str, name: str, **_: Any) -> AsyncIterator[Send]:
    connection = await nats.connect(url)
    stream = connection.jetstream()

    async def send() -> int:
        await stream.publish(f"{name}.t", BODY)
        return 1

    yield send
    await connection.close()

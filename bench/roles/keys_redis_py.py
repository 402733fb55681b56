"""The same three by hand, with redis-py."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from typing import Any

from redis.asyncio import Redis

from bench.keys import KEYS, PATTERN
from bench.role import Orders

PAGE = 500
FILL = "for i=ARGV[1],ARGV[2] do redis.call('SET', 'bench:temp:'..i, 'value '..i, 'EX', 1000000) end"


async def fill(url: str) -> None:
    client = Redis.from_url(url)
    for first in range(0, KEYS, 5_000):
        await client.eval(FILL, 0, first, first + 4_999)
    await client.aclose()


async def backup(client: Any, path: str) -> None:
    with open(path, "w") as file:
        async for keys in pages(client):
            pipe = client.pipeline(transaction=False)
            for key in keys:
                pipe.type(key).pexpiretime(key).dump(key)
            found = await pipe.execute()
            for n, key in enumerate(keys):
                kind, at, dump = found[3 * n : 3 * n + 3]
                record = {"key": key.decode(), "type": kind.decode(), "at": at, "dump": base64.b64encode(dump).decode()}
                file.write(json.dumps(record) + "\n")


async def purge(client: Any, path: str) -> None:
    async for keys in pages(client):
        await client.unlink(*keys)


async def restore(client: Any, path: str) -> None:
    with open(path) as file:
        while lines := [line for _, line in zip(range(PAGE), file, strict=False)]:
            pipe = client.pipeline(transaction=False)
            for record in map(json.loads, lines):
                pipe.restore(record["key"], record["at"], base64.b64decode(record["dump"]), absttl=True)
            await pipe.execute()


async def pages(client: Any) -> Any:
    cursor = None
    while cursor != 0:
        cursor, keys = await client.scan(cursor or 0, PATTERN, PAGE)
        if keys:
            yield keys


async def keep(orders: Orders, url: str) -> None:
    await fill(url)
    client = Redis.from_url(url)
    verbs = {"backup": backup, "purge": purge, "restore": restore}
    with tempfile.TemporaryDirectory() as folder:
        orders.answer(ready=True)
        async for order in orders:
            started = time.perf_counter()
            await verbs[order["verb"]](client, f"{folder}/keys.jsonl")
            seconds = time.perf_counter() - started
            orders.answer(figures={"time": (seconds, "s"), "rate": (KEYS / seconds, "keys/s")})
    await client.aclose()

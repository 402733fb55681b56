"""One process that works on a few keys of the cache and writes down what it does:
`python -m tests.chaos.cache_worker URLS NAMESPACE SEED FILE`. It ends when its stdin closes.

Each record is one `write` on a file opened for appending, so what was written survives any kill: first that an
operation is called, then what was answered. What has no answer may have happened or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import threading
import time
from typing import Any

import msgspec

from mpreg.client import connect
from mpreg.client.cache import Cache
from mpreg.errors import MpregError

KEYS = ("a", "b", "c")
COUNTER = "counter"


class Line(msgspec.Struct, frozen=True):
    at: float
    """The machine's monotonic clock, which all processes share."""
    number: int
    key: str = ""
    what: str = ""
    given: Any = None
    answer: Any = None
    is_answer: bool = False


async def one_operation(cache: Cache, what: str, key: str, given: Any) -> Any:
    match what:
        case "get":
            return await cache.get(key, consistency="strong")
        case "put":
            await cache.put(key, given)
            return None
        case "delete":
            return bool(await cache.delete(key))
        case "incr":
            return await cache.incr(key, given)
    return await cache.compare_and_swap(key, given[0], given[1])


def some_operation(chance: random.Random) -> tuple[str, str, Any]:
    what = chance.choice(["get", "get", "put", "delete", "incr", "incr", "cas"])
    given: Any = None
    if what in ("put", "incr"):
        given = chance.randrange(1, 4)
    elif what == "cas":
        given = [chance.randrange(6), chance.randrange(1, 4)]
    return what, chance.choice(KEYS), given


async def work(urls: str, namespace: str, seed: int, file: int, stop: asyncio.Event) -> None:
    chance = random.Random(seed)
    async with connect(urls.split(","), patience_s=30, timeout_s=10) as client:
        cache, number = client.cache(namespace), 0
        while not stop.is_set():
            number += 1
            what, key, given = some_operation(chance)
            if number % 3 == 0:
                what, key, given = "incr", COUNTER, 1
            os.write(file, msgspec.json.encode(Line(time.monotonic(), number, key, what, given)) + b"\n")
            try:
                answer = await one_operation(cache, what, key, given)
            except MpregError:
                await asyncio.sleep(0.01)  # nobody knows whether it happened
                continue
            line = Line(time.monotonic(), number, answer=answer, is_answer=True)
            os.write(file, msgspec.json.encode(line) + b"\n")
            await asyncio.sleep(chance.random() * 0.02)


async def main() -> None:
    urls, namespace, seed, path = sys.argv[1:]
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    await work(urls, namespace, int(seed), file, stop)


if __name__ == "__main__":
    asyncio.run(main())

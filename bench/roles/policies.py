"""One cache, replaying traces."""

from __future__ import annotations

import bisect
import heapq
import random
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any

from bench.role import Orders

KEYS = 100_000
ACCESSES = 500_000
SCAN_EVERY = 10_000
"""Accesses between two scans, and half as many new keys in each."""


async def replay(orders: Orders, cache: str) -> None:
    kind, _, name = cache.partition(":")
    orders.answer(ready=True)
    async for order in orders:
        if "trace" not in order:
            figures = {"rate": (get_rate(*made(kind, name, 1_000), order["secs"]), "gets/s")}
        else:
            keys = trace(order["trace"], order["room"])
            if kind == "optimum":
                figures = {"hits": (optimum(keys, order["room"]), "%")}
            else:
                figures = run(*made(kind, name, order["room"]), keys)
        orders.answer(figures=figures)


Get = Callable[[bytes, int], Any]
"""With what stands for nothing: 0, which is also what the time is for those that take a time."""
Put = Callable[[bytes], None]


def made(kind: str, name: str, room: int) -> tuple[Get, Put]:
    if kind == "mpreg":
        return _ours(name, room)
    if kind == "cachetools":
        import cachetools

        held: Any = getattr(cachetools, name)(room)
        return held.get, lambda key: held.__setitem__(key, b"v")
    if kind == "cachebox":
        import cachebox

        box: Any = getattr(cachebox, name)(room)
        return box.get, lambda key: box.__setitem__(key, b"v")
    if kind == "theine":
        from theine import Cache as Theine

        theine: Any = Theine(room)
        return (lambda key, _: theine.get(key)[0]), lambda key: theine.set(key, b"v")
    return _ordered_dict(room)


def _ours(policy: Any, room: int) -> tuple[Get, Put]:
    from mpreg.cache.entry import Entry
    from mpreg.cache.memory import MemorySettings, make_memory

    memory = make_memory(MemorySettings(policy=policy, entries_max=room), lambda _key, _why: None)
    put = memory.put
    entry = Entry(value=b"v", version=1, created_ms=0)
    return memory.get, lambda key: put(key, entry)


def _ordered_dict(room: int) -> tuple[Get, Put]:
    held: OrderedDict[bytes, bytes] = OrderedDict()

    def get(key: bytes, _: int) -> bytes | None:
        value = held.get(key)
        if value is not None:
            held.move_to_end(key)
        return value

    def put(key: bytes) -> None:
        held[key] = b"v"
        if len(held) > room:
            held.popitem(last=False)

    return get, put


def run(get: Get, put: Put, keys: list[bytes]) -> dict[str, tuple[float, str]]:
    """The first fifth warms it up."""
    warm = len(keys) // 5
    for key in keys[:warm]:
        if not get(key, 0):
            put(key)
    hits = 0
    start = time.perf_counter()
    for key in keys[warm:]:
        if not get(key, 0):
            put(key)
        else:
            hits += 1
    took = time.perf_counter() - start
    return {"hits": (100 * hits / (len(keys) - warm), "%"), "rate": ((len(keys) - warm) / took, "accesses/s")}


def get_rate(get: Get, put: Put, secs: float) -> float:
    """Of keys that are there."""
    keys = [b"key-%d" % n for n in range(100)]
    for key in keys:
        put(key)
    keys = [key for key in keys * 10 if get(key, 0)]
    count, start = 0, time.perf_counter()
    while (took := time.perf_counter() - start) < secs:
        for key in keys:
            get(key, 0)
        count += len(keys)
    return count / took


@cache
def trace(name: str, room: int) -> list[bytes]:
    if name == "loop":
        return [b"key-%d" % (n % (room * 3 // 2)) for n in range(ACCESSES)]
    dice = random.Random(1)
    exponent = float(name.removeprefix("zipf")) if name != "scan" else 1.0
    keys = _zipf(dice, exponent)
    if name != "scan":
        return keys
    found: list[bytes] = []
    for at in range(0, ACCESSES // 3 * 2, SCAN_EVERY):
        found += keys[at : at + SCAN_EVERY]
        found += [b"scan-%d-%d" % (at, n) for n in range(SCAN_EVERY // 2)]
    return found


@cache
def _zipf(dice: random.Random, exponent: float) -> list[bytes]:
    sums, total = [], 0.0
    for rank in range(1, KEYS + 1):
        total += rank**-exponent
        sums.append(total)
    names = [b"key-%d" % n for n in dice.sample(range(KEYS), KEYS)]
    return [names[bisect.bisect(sums, dice.random() * total)] for _ in range(ACCESSES)]


def optimum(keys: list[bytes], room: int) -> float:
    """Belady: the key goes that is asked for last."""
    never = len(keys)
    following = [never] * len(keys)
    last: dict[bytes, int] = {}
    for at in range(len(keys) - 1, -1, -1):
        following[at] = last.get(keys[at], never)
        last[keys[at]] = at
    held: dict[bytes, int] = {}
    heap: list[tuple[int, bytes]] = []
    hits = 0
    for at, key in enumerate(keys):
        if key in held:
            hits += at >= len(keys) // 5
        elif len(held) >= room:
            while True:
                when, farthest = heapq.heappop(heap)
                if held.get(farthest) == -when:
                    del held[farthest]
                    break
        held[key] = following[at]
        heapq.heappush(heap, (-following[at], key))
    return 100 * hits / (len(keys) - len(keys) // 5)

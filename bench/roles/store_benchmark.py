"""redis-benchmark, a program in C: one connection, `callers` commands written at once."""

from __future__ import annotations

import asyncio
import csv

from bench.role import Orders
from bench.store import KEYS, VALUE

TRIAL_REQUESTS = 10_000


async def measure(path: str, verb: str, callers: int, requests: int) -> dict[str, float]:
    argv = ["redis-benchmark", "-s", path, "-c", "1", "-P", str(callers), "-n", str(requests), "-r", str(KEYS)]
    argv += ["-d", str(len(VALUE)), "-t", verb, "--csv"]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    out, _ = await process.communicate()
    row = next(csv.DictReader(out.decode().splitlines()))
    return {name: float(value) for name, value in row.items() if name != "test"}


async def calls(orders: Orders, url: str, path: str) -> None:
    orders.answer(ready=True)
    async for order in orders:
        short = await measure(path, order["verb"], order["callers"], TRIAL_REQUESTS)
        requests = int(short["rps"] * order["secs"])
        found = await measure(path, order["verb"], order["callers"], requests)
        orders.answer(figures={"rate": (found["rps"], "ops/s"), "p50": (found["p50_latency_ms"] * 1000, "us")})

"""Load loops of the asyncio roles: one call after another, or n callers at a time; what they took."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Call = Callable[[], Awaitable[object]]
WARM_CALLS = 50
WARM_S = 0.2
NS = 1_000_000_000


def percentile_us(latencies_ns: Sequence[int], share: float) -> float:
    ordered = sorted(latencies_ns)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e3


def latency_figures(latencies_ns: Sequence[int]) -> dict[str, tuple[float, str]]:
    return {"p50": (percentile_us(latencies_ns, 0.5), "us"), "p99": (percentile_us(latencies_ns, 0.99), "us")}


async def _caller(call: Call, end_ns: int, latencies: list[int]) -> None:
    clock = time.perf_counter_ns
    start = clock()
    while start < end_ns:
        await call()
        now = clock()
        latencies.append(now - start)
        start = now


async def run(call: Call, *, callers: int, secs: float, unit: str = "calls/s") -> dict[str, tuple[float, str]]:
    """`callers` loops over `call` for `secs` -> rate, p50, p99. What ran before is warm-up."""
    clock = time.perf_counter_ns
    if callers == 1:
        for _ in range(WARM_CALLS):
            await call()
    else:
        end = clock() + int(min(WARM_S, secs) * NS)
        await asyncio.gather(*(_caller(call, end, []) for _ in range(callers)))
    latencies: list[int] = []
    start = clock()
    if callers == 1:
        await _caller(call, start + int(secs * NS), latencies)
    else:
        await asyncio.gather(*(_caller(call, start + int(secs * NS), latencies) for _ in range(callers)))
    rate = len(latencies) / ((clock() - start) / NS)
    return {"rate": (rate, unit), **latency_figures(latencies)}


async def obey(orders: Any, call: Call, *, unit: str = "calls/s") -> None:
    """The client's half of a case: {callers, secs} -> its figures, until the run is over."""
    async for order in orders:
        orders.answer(figures=await run(call, callers=order["callers"], secs=order["secs"], unit=unit))

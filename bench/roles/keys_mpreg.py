"""`mpreg keys backup`, `purge` and `restore`, each a process of its own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time

from bench.keys import KEYS, PATTERN
from bench.role import Orders
from bench.roles.keys_redis_py import fill

COMMANDS = {
    "backup": ("backup", "keys.jsonl", "--pattern", PATTERN),
    "purge": ("purge", PATTERN, "--yes", "--max", str(KEYS), "--rate", str(100 * KEYS)),
    "restore": ("restore", "keys.jsonl"),
}


async def keep(orders: Orders, url: str) -> None:
    await fill(url)
    with tempfile.TemporaryDirectory() as folder:
        orders.answer(ready=True)
        async for order in orders:
            started = time.perf_counter()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mpreg", "keys", *COMMANDS[order["verb"]], "--store", url),
                cwd=folder,
                stdout=asyncio.subprocess.DEVNULL,
            )
            if await process.wait():
                raise RuntimeError(f"mpreg keys {order['verb']} failed")
            seconds = time.perf_counter() - started
            orders.answer(figures={"time": (seconds, "s"), "rate": (KEYS / seconds, "keys/s")})

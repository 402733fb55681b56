"""The inside of a role's process: `python -m bench.role MODULE:FUNCTION CONFIG LOOP` runs an async function with
`Orders`, the lines that the run writes to it.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any


class Orders:
    """What the run asks of this role. Answers go to the stdout that the process was started with; anything else that
    prints there would break the protocol, so `print` is led to stderr."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._answers = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, json.loads(line))
        self._loop.call_soon_threadsafe(self._queue.put_nowait, None)

    def answer(self, **fields: Any) -> None:
        self._answers.write(json.dumps(fields).encode() + b"\n")

    async def ended(self) -> None:
        """Wait until the run has no more need of this role."""
        async for _ in self:
            pass

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while (order := await self._queue.get()) is not None:
            yield order


async def play(role: str, config: dict[str, Any]) -> None:
    module, _, function = role.partition(":")
    orders = Orders()
    try:
        await getattr(importlib.import_module(module), function)(orders, **config)
    except Exception as error:
        orders.answer(failed=f"{type(error).__name__}: {error}"[:500])
        raise


def main() -> None:
    _, role, config, loop = sys.argv
    if loop == "uvloop":
        import uvloop

        uvloop.run(play(role, json.loads(config)))
    else:
        asyncio.run(play(role, json.loads(config)))


if __name__ == "__main__":
    try:
        main()
    finally:
        sys.stderr.flush()
        if sys.exc_info()[0] is None:
            os._exit(0)  # some peers leave threads behind that would keep the process

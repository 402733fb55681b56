"""Nodes of one cluster, and who asks them: with the function at the node that is asked, or one hop further."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.load import obey
from bench.role import Orders
from bench.rpc import TEXT
from mpreg import Node, Settings, connect

WORK_S = 0.0004
APP = """
import time
from mpreg import Node

node = Node("bench")

@node.function
async def work(text: str) -> str:
    end = time.thread_time() + {work_s}
    while time.thread_time() < end:
        pass
    return text
"""


async def node(orders: Orders, name: str, has: bool, cluster: str = "", join: str = "") -> None:
    settings = Settings(store="off", ws="off", tcp=0, cluster=cluster, join=(join,) if join else ())
    made = Node(name, settings)
    if has:

        @made.function
        async def same(text: str) -> str:
            return text

    async with made:
        orders.answer(url=made.listeners["tcp"])
        await orders.ended()


async def ask(orders: Orders, url: str) -> None:
    async with connect(url) as client:

        async def call() -> None:
            assert await client.call("same", TEXT) == TEXT

        await _until_known(client, "same")
        orders.answer(ready=True)
        await obey(orders, call)


async def workers(orders: Orders, count: int) -> None:
    """`mpreg serve --workers`, as a user would start it."""
    with tempfile.TemporaryDirectory(prefix="mpreg-bench-") as folder:
        (Path(folder) / "app.py").write_text(APP.format(work_s=WORK_S))
        ready = Path(folder) / "ready.json"
        options = ["--workers", str(count), "--ws", "off", "--tcp", "0", "--store", "off", "--ready-file", str(ready)]
        command = [sys.executable, "-m", "mpreg", "serve", "app.py", *options]
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=asyncio.subprocess.DEVNULL)
        try:
            while not ready.exists():
                await asyncio.sleep(0.02)
            orders.answer(url=json.loads(ready.read_bytes())["listeners"]["tcp"])
            await orders.ended()
        finally:
            process.terminate()
            await process.wait()


async def ask_workers(orders: Orders, url: str, connections: int) -> None:
    """Each call on the next of several connections, which the kernel spreads over the workers."""
    clients = [await connect(url) for _ in range(connections)]
    turn = itertools.cycle(clients).__next__

    async def call() -> None:
        assert await turn().call("work", TEXT) == TEXT

    orders.answer(ready=True)
    await obey(orders, call)
    for client in clients:
        await client.close()


async def _until_known(client: Any, function: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if any(each["name"] == function for each in await client.call("mpreg.functions")):
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"{function} is not known to the node that is asked")

"""One subscriber of a hundred is stopped (SIGSTOP): the others keep their rate, the stopped one is dropped at the
limit, and the node's memory stays bounded (R-P5). Real processes: a node, a subscriber that stops, 99 that don't."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.node.processes import ENVIRONMENT, ROOT, Served, serving

from mpreg.client import Client, connect

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

OTHERS = 99
LIMIT_MB = 10
PAYLOAD = b"x" * 1_000
MESSAGES = 8_000
"""Of one phase: 8 MB for each subscriber."""

ONE = """
import asyncio, sys
from mpreg import connect

async def main():
    async with connect(sys.argv[1]) as client, client.subscribe("load.#", payload_type=bytes) as messages:
        print("begun", flush=True)
        async for batch in messages.batches():
            pass

asyncio.run(main())
"""

OTHER = """
import asyncio, sys
from mpreg import connect

async def main():
    got = 0
    wanted = int(sys.argv[3])
    done = asyncio.Event()

    def count(message):
        nonlocal got
        got += 1
        if got % wanted == 0:
            done.set()

    clients = [await connect(sys.argv[1]) for _ in range(int(sys.argv[2]))]
    for client in clients:
        await client.subscribe("load.#", payload_type=bytes, callback=count)
    print("begun", flush=True)
    while True:
        await done.wait()
        done.clear()
        print(got, flush=True)

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def program(text: str, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", text, *args, cwd=ROOT, env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"begun\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


async def phase(publisher: Client, others: asyncio.subprocess.Process) -> float:
    """Publish, and wait until the others have it all; deliveries a second."""
    assert others.stdout is not None
    begun = time.monotonic()
    for number in range(MESSAGES):
        await publisher.publish(f"load.{number % 10}", PAYLOAD)
    await others.stdout.readline()
    return MESSAGES * OTHERS / (time.monotonic() - begun)


async def topic_exchange(client: Client) -> dict[str, float]:
    found: dict[str, float] = (await client.call("mpreg.stats"))["topic_exchange"]
    return found


async def test_one_that_is_stopped_is_dropped_and_nobody_else_notices(tmp_path: Path) -> None:
    settings = tmp_path / "mpreg.toml"
    settings.write_text(
        f"[limits]\nwaiting_bytes_max = {LIMIT_MB * 1_000_000}\n[pubsub]\nbacklog_bytes_max = 5_000_000\n"
        "written_bytes_max = 100_000\n"  # a megabyte for each of a hundred would hide what is measured
    )
    args = ("--ws", "off", "--tcp", "0", "--store", "off", "--config", str(settings))
    async with (
        serving(tmp_path, *args) as node,
        program(OTHER, node.url, str(OTHERS), str(MESSAGES * OTHERS)) as others,
        program(ONE, node.url) as one,
        connect(node.url) as publisher,
    ):
        await stop_one(node, one, others, publisher)


async def stop_one(
    node: Served, one: asyncio.subprocess.Process, others: asyncio.subprocess.Process, publisher: Client
) -> None:
    await phase(publisher, others)
    before = await phase(publisher, others)
    memory_before = memory_mb(node.process.pid)
    os.kill(one.pid, signal.SIGSTOP)
    rates, memory = [], []
    while not (await topic_exchange(publisher))["slow_disconnects"]:
        rates.append(await phase(publisher, others))
        memory.append(memory_mb(node.process.pid))
        assert len(rates) <= 2 * LIMIT_MB * 1_000_000 / (MESSAGES * len(PAYLOAD)) + 5, "never dropped"
    found = await topic_exchange(publisher)
    assert found["slow_disconnects"] == 1
    assert found["slow_subscribers"] == 0
    assert found["messages_dropped"] > 0
    after = await phase(publisher, others)
    assert (await topic_exchange(publisher))["messages_delivered"] >= MESSAGES * OTHERS * (3 + len(rates))
    while (await topic_exchange(publisher))["active_subscriptions"] > OTHERS:
        pass  # its link is cut when it has not taken leave in time
    shown = f"{before:,.0f} before, {[round(rate) for rate in rates]} while one is stopped, {after:,.0f} after"
    sys.stderr.write(f"deliveries/s: {shown}; MB: {memory_before:.0f} before, {[round(each) for each in memory]}\n")
    assert max(memory) < memory_before + 5 * LIMIT_MB, "a message of 1 kB takes 3 to 4 kB: its fields, and its frame"

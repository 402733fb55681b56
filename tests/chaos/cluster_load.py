"""Processes of one cluster that are killed and paused, and clients that call, publish, and keep a record.

Every function answers with who it is and with what it was asked, so that a wrong answer shows; every message carries
the run of its publisher and a number.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.node.processes import start

from mpreg.client import Client, connect
from mpreg.errors import MpregError

APP = """
import asyncio
from mpreg.node import Node

node = Node()
name = {name!r}

@node.function(name="who." + name)
async def who(asked):
    return [name, asked]

@node.function(name="slow." + name)
async def slow(asked, seconds: float):
    await asyncio.sleep(seconds)
    return [name, asked]

@node.function
async def anyone(asked):
    return [name, asked]

@node.function(name="tasks." + name)
async def tasks():
    return len(asyncio.all_tasks())
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """One node, always at the same port; `faulty_since` and `well_since` are moments of the monotonic clock."""

    def __init__(self, name: str, folder: Path, seeds: list[str], port: int) -> None:
        self.name = name
        self.url = f"tcp://127.0.0.1:{port}"
        self.runs = 0
        self.faulty = True
        self.changed = time.monotonic()
        self._folder = folder / name
        self._folder.mkdir()
        (self._folder / "app.py").write_text(APP.format(name=name))
        join = [word for seed in seeds for word in ("--join", seed)]
        self._options = ["--name", name, "--ws", "off", "--tcp", str(port), "--store", "off", "--cluster", "chaos"]
        self._options += ["--membership", "local", *join]
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        ready = self._folder / "ready.json"
        ready.unlink(missing_ok=True)
        self.process = await start(self._folder, "serve", "app.py", "--ready-file", str(ready), *self._options)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            asyncio.get_running_loop().create_task(_swallow(stream, self._folder / "log"))
        async with asyncio.timeout(30):
            while not ready.exists():
                assert self.process.returncode is None, (self._folder / "log").read_text()[-2000:]
                await asyncio.sleep(0.02)  # nothing tells when a file appears
        assert json.loads(ready.read_bytes())["node"] == self.name
        self.runs += 1
        self.is_well()

    def is_well(self) -> None:
        self.faulty = False
        self.changed = time.monotonic()

    def signal(self, number: int) -> None:
        assert self.process is not None
        if number in (signal.SIGKILL, signal.SIGSTOP):
            self.faulty = True
            self.changed = time.monotonic()
        os.kill(self.process.pid, number)

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.signal(signal.SIGKILL)
            await self.process.wait()

    def well_for(self, now: float) -> float:
        return -1.0 if self.faulty else now - self.changed

    def log(self) -> str:
        file = self._folder / "log"
        return file.read_text() if file.exists() else ""


async def _swallow(stream: asyncio.StreamReader, file: Path) -> None:
    with file.open("ab") as log:
        while data := await stream.read(65536):
            log.write(data)
            log.flush()


class Load:
    """Calls and messages at all nodes, and what was wrong with them."""

    def __init__(self, nodes: list[Process], settled_s: float, lost_s: float) -> None:
        self.nodes = nodes
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.longest_loss_s = 0.0
        self._settled_s = settled_s
        self._lost_s = lost_s
        self._numbers = itertools.count(1)
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        for node in self.nodes:
            self._tasks += [asyncio.create_task(self._calls(node)), asyncio.create_task(self._topics(node))]

    async def end(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _calls(self, entry: Process) -> None:
        """One call after another through one node, to each of the others in turn."""
        while not self._stop.is_set():
            try:
                async with connect(entry.url, discover_s=0, connect_timeout_s=2) as client:
                    await self._call_all(client, entry)
            except MpregError:
                await asyncio.sleep(0.2)

    async def _call_all(self, client: Client, entry: Process) -> None:
        for target in itertools.cycle([*self.nodes, None]):
            if self._stop.is_set():
                return
            if entry.faulty:
                self.counts["entry_faulty"] += 1
                raise MpregError("TEST", "the node that is asked is faulty")
            await asyncio.gather(*(self._call(client, entry, target, slow) for slow in (False, True)))

    async def _call(self, client: Client, entry: Process, target: Process | None, slow: bool) -> None:
        asked = next(self._numbers)
        begun = time.monotonic()
        was_well = self._were_well(entry, target, begun)
        try:
            if target is None:
                answer = await client.call("anyone", asked, timeout=60)
            elif slow:
                answer = await client.call(f"slow.{target.name}", asked, 0.05, timeout=60)
            else:
                answer = await client.call(f"who.{target.name}", asked, timeout=60)
        except MpregError as error:
            self._failed(entry, target, was_well, begun, error)
            return
        self.counts["answered"] += 1
        if answer[1] != asked or (target is not None and answer[0] != target.name):
            self.wrong.append(f"asked {asked} of {target and target.name}, got {answer}")

    def _failed(self, entry: Process, target: Process | None, was_well: bool, begun: float, error: MpregError) -> None:
        now = time.monotonic()
        self.counts[f"failed {error.code}"] += 1
        stayed = not entry.faulty and entry.changed <= begun
        if stayed:
            self.longest_loss_s = max(self.longest_loss_s, now - begun)
            if now - begun > self._lost_s:
                self.wrong.append(f"{target and target.name} by {entry.name}: {error} only after {now - begun:.1f} s")
        if target is entry and stayed:
            self.wrong.append(f"{entry.name}'s own function: {error}")
        if was_well and self._were_well(entry, target, now):
            self.wrong.append(f"{target and target.name} by {entry.name}, both well: {error}")

    def _were_well(self, entry: Process, target: Process | None, now: float) -> bool:
        """For so long that everybody must know."""
        return all(each.well_for(now) >= self._settled_s for each in (entry, target or entry))

    async def _topics(self, entry: Process) -> None:
        """Publishes through one node, and hears what all publish; nothing twice, nothing out of order."""
        latest: dict[str, int] = {}

        def heard(message: Any) -> None:
            run, number = message.payload
            self.counts["heard"] += 1
            if number <= latest.get(run, -1):
                self.wrong.append(f"at {entry.name}: {run} said {number} after {latest[run]}")
            latest[run] = number

        while not self._stop.is_set():
            latest.clear()
            with contextlib.suppress(MpregError):
                async with connect(entry.url, discover_s=0, connect_timeout_s=2, timeout_s=5) as client:
                    run = f"{entry.name}-{next(self._numbers)}"
                    async with client.subscribe("chaos.#", callback=heard) as subscription:
                        wire_id = subscription.wire_id
                        for number in itertools.count():
                            if self._stop.is_set() or entry.faulty or subscription.wire_id != wire_id:
                                break
                            await client.publish(f"chaos.{number % 3}.{run}", [run, number])
                            self.counts["published"] += 1
                            await asyncio.sleep(0.005)
            await asyncio.sleep(0.1)

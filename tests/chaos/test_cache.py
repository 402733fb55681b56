"""Exact operations while clients and nodes are killed: histories are linearizable, counters exact."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
from tests.cache.linearizable import Done, is_linearizable, register
from tests.chaos.cache_worker import COUNTER, KEYS, Line
from tests.node.processes import ENVIRONMENT, ROOT, serving
from tests.store.servers import valkey

from mpreg.client import connect

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]
WORKERS = 4
ROUNDS = 8


async def start_worker(urls: str, seed: int, file: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.cache_worker", urls, "chaos", str(seed), str(file)),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=asyncio.subprocess.PIPE,
    )


async def grows(file: Path, lines: int) -> None:
    """Until that many more lines are written."""
    wanted = _lines(file) + lines
    async with asyncio.timeout(60):
        while _lines(file) < wanted:
            await asyncio.sleep(0.02)  # nothing tells when a file grows


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def read(file: Path) -> dict[str, list[Done]]:
    """What one process has done, by key."""
    called: dict[int, Line] = {}
    found: dict[str, list[Done]] = defaultdict(list)
    if not file.exists():  # killed before it had begun
        return found
    for data in file.read_bytes().splitlines():
        line = msgspec.json.decode(data, type=Line)
        if not line.is_answer:
            called[line.number] = line
            continue
        begun = called.pop(line.number)
        found[begun.key].append(Done(begun.at, line.at, begun.what, _tuple(begun.given), line.answer))
    for lost in called.values():
        found[lost.key].append(Done(lost.at, math.inf, lost.what, _tuple(lost.given)))
    return found


def _tuple(given: object) -> object:
    return tuple(given) if isinstance(given, list) else given


async def test_histories_are_linearizable_and_counters_exact_through_kills(tmp_path: Path) -> None:
    with valkey() as server:
        options = ("--ws", "0", "--tcp", "0", "--store", server.url)
        places = [tmp_path / name for name in ("a", "b")]
        for place in places:
            place.mkdir()
        async with serving(places[0], *options) as one, serving(places[1], *options) as two:
            urls = f"{one.url},{two.url}"
            files: list[Path] = []
            workers: list[asyncio.subprocess.Process] = []

            async def another() -> None:
                files.append(tmp_path / f"worker{len(files)}")
                order = urls if len(files) % 2 else ",".join(reversed(urls.split(",")))
                workers.append(await start_worker(order, len(files), files[-1]))

            for _ in range(WORKERS):
                await another()
            for n in range(ROUNDS):
                await grows(files[-1], 30)
                victim = workers[n]
                victim.kill()
                await victim.wait()
                await another()
                if n == ROUNDS // 2:
                    one.process.send_signal(signal.SIGKILL)
                    await one.process.wait()
            for worker in workers[ROUNDS:]:
                assert worker.stdin is not None
                worker.stdin.close()
                await worker.wait()
            async with connect(two.url) as client:
                total = await client.cache("chaos").get(COUNTER, consistency="strong")

    history: dict[str, list[Done]] = defaultdict(list)
    for file in files:
        for key, done in read(file).items():
            history[key] += done
    counted = history.pop(COUNTER)
    sure = sum(1 for done in counted if not math.isinf(done.answered))
    assert sure <= total <= len(counted)
    answers = [done.answer for done in counted if not math.isinf(done.answered)]
    assert len(set(answers)) == len(answers), "no increment is lost, none is counted twice"
    assert sure > 100
    assert set(history) == set(KEYS)
    for key in KEYS:
        assert is_linearizable(history[key], register, None), key


APP = """
import asyncio, os, sys
from mpreg import Node

node = Node()


@node.function(cache=600)
async def compute(key: str) -> str:
    with open("computed", "a") as file:
        file.write(f"{os.getpid()}\\n")
    if not os.path.exists("go"):
        await asyncio.Event().wait()  # until it is killed
    return "computed"
"""


async def test_when_the_computing_node_is_killed_exactly_one_other_takes_over(tmp_path: Path) -> None:
    with valkey() as server:
        options = ("app.py", "--ws", "off", "--tcp", "0", "--store", server.url)
        places = [tmp_path / name for name in ("a", "b", "c")]
        shared = tmp_path / "computed"
        for place in places:
            place.mkdir()
            (place / "app.py").write_text(APP)
            (place / "computed").symlink_to(shared)
            (place / "go").symlink_to(tmp_path / "go")
        async with (
            serving(places[0], *options) as doomed,
            serving(places[1], *options) as two,
            serving(places[2], *options) as three,
            connect(doomed.url) as first,
            connect(two.url) as second,
            connect(three.url) as third,
        ):
            lost = asyncio.create_task(first.call("compute", "k"))
            await grows(shared, 1)
            waiting = [asyncio.create_task(client.call("compute", "k")) for client in (second, third) * 20]
            await second.call("echo", 1)  # they have arrived: a connection's messages are taken in order
            await third.call("echo", 1)
            (tmp_path / "go").touch()
            doomed.process.kill()
            assert await asyncio.gather(*waiting) == ["computed"] * 40
            assert _lines(shared) == 2
            assert shared.read_text().splitlines()[0] == str(doomed.process.pid)
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)

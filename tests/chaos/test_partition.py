"""A network that is really cut in two, 2 | 3, and heals: each side goes on by itself, and then all are one again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.namespaces import Network, missing
from tests.node.processes import ENVIRONMENT, ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]

APP = """
from mpreg.node import Node

node = Node()

@node.function(name="who.{name}")
async def who() -> str:
    return "{name}"
"""


async def run_in(network: Network, name: str, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *network.inside(name),
        sys.executable,
        "-m",
        "mpreg",
        *words,
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def nodes(network: Network, folder: Path) -> AsyncIterator[None]:
    (folder / "secret").write_text("0123456789abcdef" * 2)
    join = [word for name in network.names[:3] for word in ("--join", f"tcp://{network.address(name)}:6668")]
    started: list[asyncio.subprocess.Process] = []
    try:
        for name in network.names:
            (folder / f"{name}.py").write_text(APP.format(name=name))
            options = ["--name", name, "--host", "0.0.0.0", "--ws", "off", "--store", "off", "--cluster", "cut"]
            options += ["--cluster-secret-file", str(folder / "secret"), "--membership", "local"]
            options += ["--advertise", f"tcp://{network.address(name)}:6668", *join]
            with (folder / f"{name}.log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *network.inside(name),
                    sys.executable,
                    "-m",
                    "mpreg",
                    "serve",
                    str(folder / f"{name}.py"),
                    *options,
                    cwd=ROOT,
                    env=ENVIRONMENT,
                    stdout=log,
                    stderr=log,
                )
            started.append(process)
        yield
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            await process.wait()


async def alive(network: Network, name: str) -> set[str]:
    """Whom this node thinks alive and is linked with, and itself."""
    code, out, _ = await run_in(network, name, "cluster", "nodes", "--json", "--url", "tcp://127.0.0.1:6668")
    if code != 0:
        return set()
    found: list[dict[str, Any]] = json.loads(out)
    return {each["name"] for each in found if each.get("self") or (each["state"] == "alive" and each["linked"])}


async def until_alive(network: Network, *sides: str) -> None:
    seen: dict[str, set[str]] = {}
    try:
        async with asyncio.timeout(90):
            while True:
                seen = {name: await alive(network, name) for name in network.names}
                if all(seen[name] == set(side) for side in sides for name in side):
                    return
    except TimeoutError:
        raise AssertionError(f"they never saw {sides}: {seen}") from None


async def call(network: Network, asked: str, function: str) -> str:
    code, out, err = await run_in(network, asked, "call", function, "--url", "tcp://127.0.0.1:6668")
    return out.strip() if code == 0 else err.strip()


async def test_each_side_goes_on_and_after_the_healing_all_are_one_again(tmp_path: Path) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with Network("abcde").up() as network:
        async with nodes(network, tmp_path):
            await until_alive(network, "abcde")
            assert await call(network, "a", "who.e") == "e"
            network.cut_off("de")
            await until_alive(network, "abc", "de")
            assert await call(network, "a", "who.c") == "c"
            assert await call(network, "e", "who.d") == "d"
            assert await call(network, "e", "who.e") == "e"
            assert "RPC_FUNCTION_NOT_FOUND" in await call(network, "a", "who.e")
            assert "RPC_FUNCTION_NOT_FOUND" in await call(network, "d", "who.a")
            network.heal()
            await until_alive(network, "abcde")
            for asked, other in ("ae", "da", "cd"):
                assert await call(network, asked, f"who.{other}") == other

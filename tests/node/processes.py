"""`mpreg serve` as a real process, on free ports, ended by its pid."""

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

ROOT = Path(__file__).parents[2]
MPREG = (sys.executable, "-m", "mpreg")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MPREG_")}


class Served:
    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, Any]) -> None:
        self.process = process
        self.ready = ready
        self.url = str(ready["listeners"].get("tcp") or next(iter(ready["listeners"].values())))

    async def ended(self) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        out, err = await asyncio.wait_for(self.process.communicate(), 30)
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()

    async def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        return await self.ended()


@contextlib.asynccontextmanager
async def serving(directory: Path, *args: str, env: dict[str, str] | None = None) -> AsyncIterator[Served]:
    """Until its ready file is there, or it ends; killed if the test did not end it."""
    ready_file = directory / "ready.json"
    ready_file.unlink(missing_ok=True)  # of one that was killed
    process = await start(directory, "serve", "--ready-file", str(ready_file), *args, env=env)
    try:
        async with asyncio.timeout(30):
            while not ready_file.exists():
                if process.returncode is not None:
                    out, err = await process.communicate()
                    raise AssertionError(f"ended with {process.returncode}: {out.decode()}{err.decode()}")
                await asyncio.sleep(0.01)  # nothing tells when a file appears
        yield Served(process, json.loads(ready_file.read_bytes()))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def start(directory: Path, *args: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *MPREG,
        *args,
        cwd=directory,
        env={**ENVIRONMENT, **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def mpreg(directory: Path, *args: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of one command."""
    process = await start(directory, *args, env=env)
    try:
        out, err = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()

"""A node as a process: signals, logs, the lines that say where it listens, and the ready file."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from mpreg import config
from mpreg.node import logs
from mpreg.node.open_files import allow_open_files
from mpreg.node.ready import ReadyFile

if TYPE_CHECKING:
    from mpreg.node.node import Node

log = logging.getLogger(__name__)


def run(
    node: Node,
    *,
    file: str | Path | None = None,
    overrides: dict[str, Any] | None = None,
    ready_file: str | Path | None = None,
    settled: Callable[[Node], None] | None = None,
) -> None:
    """Settle the settings, serve until SIGTERM or SIGINT, stop in good order. `settled` is told once they are final."""
    node.settings = config.load(node.settings, file=file, environment=os.environ, overrides=overrides)
    if settled is not None:
        settled(node)
    logs.set_up(node.settings.log, node.settings.debug)
    allow_open_files(node.settings.connections_max)
    ready = None if ready_file is None else ReadyFile(Path(ready_file))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(node, ready))


async def _serve(node: Node, ready_file: ReadyFile | None) -> None:
    loop = asyncio.get_running_loop()
    signals = _Signals()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.received, number)
    await node.start()
    try:
        ready = _ready(node)
        stored = {} if node.store is None else {"store": str(node.store.url)}  # without its password
        for name, url in {**node.listeners, **stored}.items():
            sys.stdout.write(f"{name} {url}\n")
        sys.stdout.flush()
        if ready_file is not None:
            ready_file.write(msgspec.json.encode(ready) + b"\n")
        log.info("%s serves", node.name)
        await _until(signals, node)
        log.info("%s stops on %s", node.name, signal.Signals(signals.number).name)
    finally:
        if ready_file is not None:
            ready_file.remove()
        await node.stop()


async def _until(signals: _Signals, node: Node) -> None:
    """The first signal, or what the node can't go on without."""
    told = asyncio.create_task(signals.first.wait())
    failed = asyncio.create_task(node.failed())
    try:
        await asyncio.wait((told, failed), return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            await failed
    finally:
        told.cancel()
        failed.cancel()


class _Signals:
    """The first one stops the node in good order, the second one at once."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.number = 0

    def received(self, number: int) -> None:
        if self.first.is_set():
            os._exit(128 + number)
        self.number = number
        self.first.set()


def _ready(node: Node) -> dict[str, Any]:
    ready = {"node": node.name, "pid": os.getpid(), "listeners": node.listeners}
    return ready if node.store_url is None else {**ready, "store": node.store_url}

"""`mpreg serve --workers N`: N nodes on this machine, one cluster behind the same ports, each in a process of its own.

The supervisor accepts nothing itself. It holds the ports (SO_REUSEPORT: the kernel spreads connections over the
workers), runs the embedded store if there is one, starts workers again that die, and stops them all in good order.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import random
import secrets
import signal
import socket
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from mpreg import config
from mpreg.errors import ConfigError
from mpreg.node import logs
from mpreg.node.node import Node
from mpreg.node.ready import ReadyFile
from mpreg.node.settings import Settings, listed
from mpreg.store import Embedded
from mpreg.transport import Backoff
from mpreg.transport.url import parse, url_of

log = logging.getLogger(__name__)

WORKERS_MAX: Final = 256
READY_S: Final = 60.0
STABLE_S: Final = 10.0
"""A worker that lived so long is started again without a pause."""
STOP_S: Final = 15.0
"""On top of the grace time."""
LOOK_S: Final = 0.01
"""Nothing tells when a file appears."""
PARENT: Final = "MPREG_WORKER_OF"
PR_SET_PDEATHSIG: Final = 1


def run_workers(
    app: str,
    node: Node,
    count: int,
    *,
    file: str | None = None,
    overrides: dict[str, Any] | None = None,
    ready_file: str | None = None,
) -> None:
    """Serve with `count` processes until SIGTERM or SIGINT."""
    if not 1 <= count <= WORKERS_MAX:
        raise ConfigError("CONFIG_INVALID", f"workers: 1 to {WORKERS_MAX}", setting="workers")
    settings = config.load(node.settings, file=file, environment=os.environ, overrides=overrides)
    logs.set_up(settings.log, settings.debug)
    ready = None if ready_file is None else ReadyFile(Path(ready_file))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Supervisor(app, settings, count, file, overrides or {}, ready).serve())


def end_with_parent() -> None:
    """In a worker: a supervisor that is killed takes its workers with it."""
    parent = os.environ.get(PARENT)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)


class _Supervisor:
    def __init__(
        self,
        app: str,
        settings: Settings,
        count: int,
        file: str | None,
        overrides: dict[str, Any],
        ready: ReadyFile | None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._count = count
        self._file = file
        self._overrides = overrides
        self._ready = ready
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._told: dict[int, dict[str, Any]] = {}
        self._stopping = asyncio.Event()
        self._ports: dict[str, int] = {}
        self._links: list[int] = []
        self._folder = Path()
        self._store = settings.store

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        async with AsyncExitStack() as undo:
            self._folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="mpreg-workers-")))
            self._hold_ports(undo)
            embedded: Embedded | None = None
            if self._settings.store == "embedded:":
                embedded = Embedded(self._settings.data_dir, self._settings.durability)
                await undo.enter_async_context(embedded)
                self._store = embedded.url
            try:
                async with asyncio.TaskGroup() as group:
                    keeping = [group.create_task(self._keep(number)) for number in range(self._count)]
                    group.create_task(self._tell_ready())
                    if embedded is not None:
                        keeping.append(group.create_task(self._until_over(embedded)))
                    await self._stopping.wait()
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None
            finally:
                if self._ready is not None:
                    self._ready.remove()

    async def _until_over(self, embedded: Embedded) -> None:
        """The store's end for good is everybody's."""
        over = asyncio.ensure_future(embedded.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((over, stopping), return_when=asyncio.FIRST_COMPLETED)
            if over.done():
                await over
        finally:
            over.cancel()
            stopping.cancel()

    def _hold_ports(self, undo: AsyncExitStack) -> None:
        """Bound, not listening: what is free now is still free when a worker comes back."""
        settings = self._settings
        for scheme in ("ws", "wss", "tcp", "tcps"):
            port = getattr(settings, scheme)
            if port != "off":
                self._ports[scheme] = _bound(undo, settings.host, port, scheme)
        first = settings.cluster_port
        for number in range(self._count):
            port = 0 if first in ("off", 0) else int(first) + number
            self._links.append(_bound(undo, settings.host, port, "cluster_port"))

    # One worker.

    async def _keep(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(base_s=0.1, max_s=5.0)
        while not self._stopping.is_set():
            since = loop.time()
            code = await self._run(number)
            if self._stopping.is_set():
                return
            if number not in self._told:
                text = f"Worker {number + 1} ended with {code} before it was ready; its log says why"
                raise ConfigError("CONFIG_APP", text, app=self._app)
            log.warning("Worker %d ended with %s; it is started again", number + 1, code)
            if loop.time() - since >= STABLE_S:
                backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s(random.random())):
                    await self._stopping.wait()

    async def _run(self, number: int) -> int:
        file = self._folder / f"{number}.json"
        file.unlink(missing_ok=True)
        process = await asyncio.create_subprocess_exec(
            *self._command(number, file),
            env=self._environment(number),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C goes to the supervisor alone
        )
        self._processes[number] = process
        ended = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not ended.done() and not stopping.done() and not file.exists():
                await asyncio.sleep(LOOK_S)
            if file.exists():
                self._told[number] = json.loads(file.read_bytes())
            await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not ended.done():
                process.terminate()
                await asyncio.wait((ended,), timeout=self._settings.grace_s + STOP_S)
            if not ended.done():
                process.kill()
            await ended
            del self._processes[number]
        return await ended

    def _command(self, number: int, ready: Path) -> list[str]:
        settings = self._settings
        overrides = {name: value for name, value in self._overrides.items() if value not in (None, ())}
        overrides |= {**self._ports, "name": f"{settings.name}-{number + 1}", "store": self._store}
        overrides |= {"cluster": settings.cluster or f"workers-{settings.name}", "cluster_port": self._links[number]}
        overrides |= {"join": self._join(), "ready_file": str(ready)}
        advertised = listed(settings.advertise)
        if advertised:  # the ports of clients lead to any worker; the first address leads to this one
            host = parse(advertised[0]).host
            overrides["advertise"] = (url_of("tcp", host, self._links[number]), *advertised)
        if settings.cluster_secret_file is None and not settings.cluster:
            overrides["cluster_secret_file"] = self._secret()
        words: list[str] = []
        for name, value in overrides.items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                words.append(option)
            elif isinstance(value, tuple):
                words += [word for each in value for word in (option, str(each))]
            elif value is not False:
                words += [option, str(value)]
        return [sys.executable, "-m", "mpreg", "serve", *([self._app] if self._app else []), *self._config(), *words]

    def _config(self) -> list[str]:
        return [] if self._file is None else ["--config", self._file]

    def _environment(self, number: int) -> dict[str, str]:
        return {**os.environ, "MPREG_REUSE_PORT": "true", PARENT: str(os.getpid())}

    def _join(self) -> tuple[str, ...]:
        host = self._settings.host
        host = "127.0.0.1" if host in ("0.0.0.0", "localhost") else "::1" if host == "::" else host  # noqa: S104
        host = f"[{host}]" if ":" in host else host
        return (*(f"tcp://{host}:{port}" for port in self._links), *listed(self._settings.join))

    def _secret(self) -> str:
        """Of a cluster that nobody else is meant to join."""
        file = self._folder / "secret"
        if not file.exists():
            file.touch(0o600)
            file.write_text(secrets.token_hex(32))
        return str(file)

    # All of them.

    async def _tell_ready(self) -> None:
        try:
            async with asyncio.timeout(READY_S):
                while len(self._told) < self._count:
                    if self._stopping.is_set():
                        return
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            text = f"{len(self._told)} of {self._count} workers were ready within {READY_S:g} s"
            raise ConfigError("CONFIG_APP", text, app=self._app) from None
        listeners = next(iter(self._told.values()))["listeners"]
        ready: dict[str, Any] = {"node": self._settings.name, "pid": os.getpid(), "listeners": listeners}
        if self._store != "off":
            ready["store"] = self._store
        ready["workers"] = [{"node": told["node"], "pid": told["pid"]} for _, told in sorted(self._told.items())]
        for name, url in listeners.items():
            sys.stdout.write(f"{name} {url}\n")
        sys.stdout.flush()
        if self._ready is not None:
            self._ready.write(msgspec.json.encode(ready) + b"\n")
        log.info("%s serves with %d workers", self._settings.name, self._count)


def _bound(undo: AsyncExitStack, host: str, port: int, setting: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
    except OSError as problem:
        raise ConfigError(
            "CONFIG_INVALID", f"{setting}: can't bind {host}:{port}: {problem.strerror}", setting=setting
        ) from None
    bound: int = sock.getsockname()[1]
    return bound

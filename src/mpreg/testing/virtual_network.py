"""TCP between simulated machines: a virtual loop's `create_server` and `create_connection`, over a network whose faults
are chosen. As with TCP, bytes come in order or not at all: what gets lost on the way comes later, what is sent into a
partition comes when it heals, if the connection still stands then.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import deque
from collections.abc import Callable, Collection
from contextvars import Context, copy_context
from typing import Any, Final

from mpreg.testing.conditions import GOOD, Conditions
from mpreg.testing.virtual_loop import HERE, VirtualLoop

RETRANSMIT_S: Final = 0.2
"""What a lost packet costs at first; twice as much each further time."""
LOSSES_MAX: Final = 3
"""Of one packet in a row, so that a bad network is slow and not silent; for silence there is `block`."""
HIGH_WATER: Final = 64 * 1024
PORTS_FROM: Final = 20_000

Factory = Callable[[], asyncio.BaseProtocol]


class Network:
    """`machines` are known by their addresses; the test itself is at the empty name, and can always be reached unless
    it is named in a fault."""

    def __init__(self, loop: VirtualLoop, seed: int, conditions: Conditions = GOOD) -> None:
        self.loop = loop
        self.conditions = conditions
        self.random = random.Random(f"network/{seed}")
        self.machines: dict[str, str] = {}
        """host -> machine"""
        self.gone: set[str] = set()
        """Machines that nobody can reach and that answer nothing."""
        self._servers: dict[tuple[str, int], VirtualServer] = {}
        self._ports = itertools.count(PORTS_FROM)
        self._blocked: set[tuple[str, str]] = set()
        self._healed = loop.create_future()
        self._transports: dict[VirtualTransport, None] = {}

    def block(self, sources: Collection[str], targets: Collection[str]) -> None:
        self._blocked.update((a, b) for a, b in itertools.product(sources, targets) if a != b)

    def heal(self) -> None:
        self._blocked.clear()
        self._healed.set_result(None)
        self._healed = self.loop.create_future()
        self._push_all()

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked or target in self.gone or source in self.gone

    def delay_s(self) -> float:
        """For one piece of bytes, with what its losses cost."""
        conditions = self.conditions
        delay = self.random.uniform(conditions.delay_min_s, conditions.delay_max_s)
        for losses in range(LOSSES_MAX):
            if not conditions.loss or self.random.random() >= conditions.loss:
                break
            delay += RETRANSMIT_S * 2**losses
        return delay

    def kill(self, machine: str, *, silently: bool) -> None:
        """The machine's process is gone. Its kernel resets its connections, unless the machine is gone too."""
        if silently:
            self.gone.add(machine)
        for where, server in list(self._servers.items()):
            if server.machine == machine:
                del self._servers[where]
        for transport in [each for each in self._transports if each.machine == machine]:
            transport.dead = True
            transport.other.lose_what_travels()
            self.forget(transport)
            if not silently:
                transport.other.reset_by_peer()

    def back(self, machine: str) -> None:
        """A machine that was gone is there again; who has kept sending to it finds out."""
        if machine in self.gone:
            self.gone.discard(machine)
            self._push_all()

    def _push_all(self) -> None:
        for transport in list(self._transports):
            transport.push()

    # What the loop is asked for.

    async def create_server(self, factory: Factory, host: Any, port: Any, **options: Any) -> VirtualServer:
        if options.get("ssl") is not None:
            raise OSError("the virtual network has no TLS")
        number = int(port) or next(self._ports)
        machine = HERE.get()
        if (host, number) in self._servers:
            raise OSError(98, "Address already in use")
        self.machines[host] = machine
        server = self._servers[host, number] = VirtualServer(self, factory, machine, host, number)
        return server

    async def create_connection(
        self, factory: Factory, host: Any, port: Any, **options: Any
    ) -> tuple[VirtualTransport, asyncio.BaseProtocol]:
        if options.get("ssl") is not None:
            raise OSError("the virtual network has no TLS")
        source, target = HERE.get(), self.machines.get(host, host)
        await asyncio.sleep(self.delay_s())
        while self.is_blocked(source, target) or self.is_blocked(target, source):
            await asyncio.shield(self._healed)
            await asyncio.sleep(self.delay_s())
        server = self._servers.get((host, int(port)))
        if server is None:
            raise ConnectionRefusedError(111, "Connection refused")
        near = VirtualTransport(self, source, copy_context(), (host, int(port)))
        far = VirtualTransport(self, server.machine, server.context, ("127.0.0.1", next(self._ports)))
        near.other, far.other = far, near
        self._transports.update({near: None, far: None})
        far.begin(server.factory())
        protocol = factory()
        near.begin(protocol, at_once=True)
        await asyncio.sleep(self.delay_s())
        return near, protocol

    def forget(self, transport: VirtualTransport) -> None:
        self._transports.pop(transport, None)

    def close_server(self, server: VirtualServer) -> None:
        self._servers.pop((server.host, server.port), None)


class VirtualServer:
    """As much of `asyncio.Server` as a listener needs."""

    def __init__(self, network: Network, factory: Factory, machine: str, host: str, port: int) -> None:
        self.factory = factory
        self.machine = machine
        self.host = host
        self.port = port
        self.context: Context = copy_context()
        self.sockets = (self,)
        self._network = network

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    def close(self) -> None:
        self._network.close_server(self)

    async def wait_closed(self) -> None:
        return


class VirtualTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, machine: str, context: Context, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer})
        self.machine = machine
        self.dead = False
        self.other: VirtualTransport
        self._network = network
        self._context = context
        self._protocol: Any = None
        self._out: deque[bytes | None] = deque()
        """What has been written and has not arrived; None is the end."""
        self._waiting = 0
        self._high = HIGH_WATER
        self._full = False
        self._closing = False
        self._lost = False
        self._ended = False
        self._reading = True
        self._on_its_way = False
        self._read_end = False

    def begin(self, protocol: asyncio.BaseProtocol, *, at_once: bool = False) -> None:
        self._protocol = protocol
        if at_once:
            protocol.connection_made(self)
        else:
            self._call(protocol.connection_made, self)

    # asyncio's interface.

    def write(self, data: Any) -> None:
        if self._lost or self._closing or self._ended or not data:
            return
        self._out.append(bytes(data))
        self._waiting += len(data)
        if self._waiting > self._high and not self._full:
            self._full = True
            self._call(self._protocol.pause_writing)
        self.push()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._ended:
            self._ended = True
            self._out.append(None)
            self.push()

    def close(self) -> None:
        if not self._closing:
            self.write_eof()
            self._closing = True
            if not self._out:
                self._lose(None)

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self._out.clear()
            self._lose(None)
            self.other.reset_by_peer()

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.other.push()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._high // 4, self._high

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # The network's side.

    def push(self) -> None:
        """What waits goes on its way, one piece after the other, if the way is free."""
        if self._on_its_way or not self._out or self.dead:
            return
        if self.other.dead:
            if not self._network.is_blocked(self.machine, self.other.machine):
                self.reset_by_peer()  # a machine that has started again knows nothing of this connection
            return
        if self._network.is_blocked(self.machine, self.other.machine) or not self.other._reading:
            return
        self._on_its_way = True
        self._network.loop.call_later(self._network.delay_s(), self._arrive, context=self.other._context)

    def lose_what_travels(self) -> None:
        """The other machine will not take it in; what was written stays, to be sent again."""
        self._on_its_way = False

    def reset_by_peer(self) -> None:
        if not self._lost and not self.dead:
            self._out.clear()
            delay = self._network.delay_s()
            self._network.loop.call_later(
                delay, self._lose, ConnectionResetError(104, "Connection reset by peer"), context=self._context
            )

    def _arrive(self) -> None:
        """Runs on the other machine: everything that was written by now comes in one piece."""
        self._on_its_way = False
        if self.dead or self.other.dead or self._network.is_blocked(self.machine, self.other.machine):
            return
        data, end = b"", False
        while self._out and not end:
            piece = self._out.popleft()
            end = piece is None
            data += piece or b""
        self._waiting = sum(len(piece) for piece in self._out if piece is not None)
        if self._full and self._waiting <= self._high // 4 and not self._lost:
            self._full = False
            self._call(self._protocol.resume_writing)
        if data and not self.other._lost:
            self.other._protocol.data_received(data)
        if end:
            self.other._hear_end()
        if self._closing and not self._out:
            self._call(self._lose, None)

    def _hear_end(self) -> None:
        if self._lost or self._read_end:
            return
        self._read_end = True
        if not self._protocol.eof_received():
            self.close()

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._network.forget(self)
        self._call(self._protocol.connection_lost, error)

    def _call(self, do: Callable[..., Any], *args: Any) -> None:
        if not self.dead:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._network.loop.call_soon(do, *args, context=self._context)

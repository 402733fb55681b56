"""A cluster of real nodes in one process, in virtual time, over a network that does what the test wants.

    async def program(nodes: Nodes) -> None:
        await nodes.start("a", greet)
        await nodes.start("b")
        async with nodes.client("b") as client:
            assert await client.call("greet", "you") == "Hello, you!"
        nodes.partition(["a"], ["b"])
        …

    simulate(program, seed=1)

Everything but the operating system is what `mpreg serve` runs: the handshake, the frames, the machines, the calls.
There is no store. Functions that are not async run in threads, for which the clock stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextvars import copy_context
from typing import Any, Final, TypeVar
from unittest import mock

from mpreg.client import connect
from mpreg.client.connecting import Connecting
from mpreg.node import Node, Settings
from mpreg.testing.conditions import GOOD, Conditions
from mpreg.testing.rules import RuleBroken
from mpreg.testing.simulation import EPOCH
from mpreg.testing.virtual_loop import HERE, VirtualLoop
from mpreg.testing.virtual_network import Network

T = TypeVar("T")

PORT: Final = 6668
END_S: Final = 120.0
"""Virtual time that nodes have to end in good order when the program is through."""
LOOK_S: Final = 0.05


class Nodes:
    """The nodes of one cluster, by name. `conditions` may be changed at any time."""

    def __init__(self, loop: VirtualLoop, seed: int, conditions: Conditions) -> None:
        self.seed = seed
        self.running: dict[str, Node] = {}
        self._loop = loop
        self._network = Network(loop, seed, conditions)
        self._hosts: dict[str, str] = {}
        self._made: dict[str, tuple[tuple[Callable[..., Any], ...], dict[str, Any]]] = {}
        self._skews: dict[str, float] = {}
        self._crashed: list[Node] = []
        self._orphans: list[asyncio.Task[Any]] = []
        loop.is_busy = self._is_busy
        vars(loop).update(create_server=self._network.create_server, create_connection=self._network.create_connection)

    @property
    def now(self) -> float:
        """Seconds of virtual time."""
        return self._loop.now

    @property
    def conditions(self) -> Conditions:
        return self._network.conditions

    @conditions.setter
    def conditions(self, conditions: Conditions) -> None:
        self._network.conditions = conditions

    async def start(
        self, name: str, *functions: Callable[..., Any], clock_skew_s: float = 0.0, **settings: Any
    ) -> Node:
        """A node with these functions. It joins those that run; `settings` are fields of `mpreg.node.Settings`."""
        if name in self.running:
            raise ValueError(f"{name!r} is running")
        self._made[name] = functions, settings
        self._skews[name] = clock_skew_s
        self._network.back(name)
        host = self._hosts.setdefault(name, f"127.1.0.{len(self._hosts) + 1}")
        chosen: dict[str, Any] = {
            "host": host,
            "tcp": PORT,
            "ws": "off",
            "store": "off",
            "cluster": "simulated",
            "join": tuple(self.url(other) for other in self.running),
            **settings,
        }
        node = Node(name, Settings(**chosen))
        for function in functions:
            node.function(function)
        await self._on(name, node.start())
        self.running[name] = node
        return node

    async def stop(self, name: str) -> None:
        """In good order."""
        await self._on(name, self.running.pop(name).stop())

    def crash(self, name: str, *, silently: bool = False) -> None:
        """As kill -9. `silently`: the machine is gone too, so nobody is told that its connections have ended."""
        self._crashed.append(self.running.pop(name))
        self._network.kill(name, silently=silently)
        self._orphans += self._loop.discard(name)

    async def restart(self, name: str) -> Node:
        """After a crash or a stop: the same functions and settings, a new run."""
        functions, settings = self._made[name]
        return await self.start(name, *functions, clock_skew_s=self._skews[name], **settings)

    def pause(self, name: str) -> None:
        """As SIGSTOP: nothing of the node runs; what is sent to it waits."""
        self._loop.hold(name)

    def resume(self, name: str) -> None:
        self._loop.release(name)

    def block(self, sources: Collection[str], targets: Collection[str]) -> None:
        """Nothing comes through from these to those, until `heal`."""
        self._network.block(sources, targets)

    def partition(self, *groups: Collection[str]) -> None:
        """Nothing comes through between these groups, either way, until `heal`."""
        for one in groups:
            for other in groups:
                if one is not other:
                    self.block(one, other)

    def heal(self) -> None:
        self._network.heal()

    def url(self, name: str) -> str:
        return f"tcp://{self._hosts[name]}:{PORT}"

    def client(self, name: str, **options: Any) -> Connecting:
        """For `async with`: a client of this node, as `mpreg.connect` gives it."""
        return connect(self.url(name), **options)

    def members(self, name: str) -> dict[str, str]:
        """What this node thinks of the others: alive, suspect, dead or left."""
        clustering = self.running[name]._started().services.in_cluster()
        return {node_id: member.state for node_id, member in clustering.cluster.machine.members().items()}

    def agreed(self) -> bool:
        """Does every running node hold exactly the running ones for alive?"""
        return all(
            {other for other, state in self.members(name).items() if state == "alive"} == self.running.keys() - {name}
            and "suspect" not in self.members(name).values()
            for name in self.running
        )

    async def until(self, holds: Callable[[], bool], within_s: float = 60.0) -> float:
        """Waits until it holds, looking often; returns how long it took, or raises `RuleBroken`."""
        began = self.now
        while not holds():
            if self.now - began > within_s:
                raise RuleBroken(
                    f"It did not come to hold within {within_s:g} s [seed {self.seed}, at {self.now:.2f} s]"
                )
            await asyncio.sleep(LOOK_S)
        return self.now - began

    async def close(self) -> None:
        """Ends all, those that crashed too, so that nothing is left."""
        self.heal()
        for name in list(self.running):
            self.resume(name)
            await self.stop(name)
        for task in self._orphans:
            task.cancel()
        await asyncio.gather(*self._orphans, return_exceptions=True)
        for node in self._crashed:
            node._started().services.threads.close()

    def wall(self) -> float:
        """What the clock shows on the machine where this is asked."""
        return EPOCH + self.now + self._skews.get(HERE.get(), 0.0)

    async def _on(self, name: str, work: Any) -> Any:
        context = copy_context()
        context.run(HERE.set, name)
        return await self._loop.create_task(work, context=context)

    def _is_busy(self) -> bool:
        nodes = [*self.running.values(), *self._crashed]
        return any(node._running is not None and node._running.services.threads.unsettled for node in nodes)


def simulate(program: Callable[[Nodes], Awaitable[T]], *, seed: int = 0, conditions: Conditions = GOOD) -> T:
    """Runs the program with a cluster of its own, and returns what it returns. The same seed gives the same run; what
    goes wrong names the seed."""
    loop = VirtualLoop()
    with _deterministic(loop, seed), asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            return runner.run(_whole(program, loop, seed, conditions))
        except BaseException as problem:
            problem.add_note(f"[seed {seed}, at {loop.now:.3f} s of virtual time]")
            raise


async def _whole(program: Callable[[Nodes], Awaitable[T]], loop: VirtualLoop, seed: int, conditions: Conditions) -> T:
    nodes = Nodes(loop, seed, conditions)
    with mock.patch.object(time, "time", nodes.wall), mock.patch.object(time, "monotonic", loop.time):
        try:
            return await program(nodes)
        finally:
            async with asyncio.timeout(END_S):
                await nodes.close()


@contextlib.contextmanager
def _deterministic(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Names and jitter come from the seed."""
    chance = random.Random(f"nodes/{seed}")
    before = random.getstate()
    random.seed(chance.getrandbits(64))
    patches = (
        mock.patch.object(secrets, "token_hex", lambda count=32: chance.randbytes(count).hex()),
        mock.patch.object(secrets, "token_bytes", lambda count=32: chance.randbytes(count)),
    )
    try:
        with patches[0], patches[1]:
            yield
    finally:
        random.setstate(before)

"""One run of one simulated node, and a link between two of them."""

from __future__ import annotations

from collections.abc import Callable

from mpreg.cluster.effects import Effect
from mpreg.cluster.machine import Machine
from mpreg.testing.rules import Rules
from mpreg.wire.gossip import NodeInfo


class Process:
    """One run of one node."""

    def __init__(self, node: NodeInfo, machine: Machine, seeds: tuple[str, ...]) -> None:
        self.node_id = node.node_id
        self.node = node
        self.machine = machine
        self.seeds = seeds
        self.rules = Rules(node.node_id)
        self.effects: list[tuple[float, Effect]] = []
        """Everything but sending, dialling and waking, with its time."""
        self.running = True
        self.paused = False
        self.waiting: list[Callable[[], None]] = []
        """What arrived while it was paused."""
        self.wake_at = 0.0
        self.woken_at = float("inf")
        self.sent = 0
        self.sent_bytes = 0
        self.received = 0

    def __repr__(self) -> str:
        return f"<Process {self.node_id}{'' if self.running else ' stopped'}{' paused' if self.paused else ''}>"


class Link:
    """Between two processes; `arrives` is when the last message of each direction does."""

    __slots__ = ("a", "arrives", "b", "broken", "open")

    def __init__(self, a: Process, b: Process) -> None:
        self.a = a
        self.b = b
        self.open = True
        self.broken: float | None = None
        self.arrives = {a.node_id: 0.0, b.node_id: 0.0}

    def other(self, process: Process) -> Process:
        return self.b if process is self.a else self.a

"""A cluster of machines over simulated links, in virtual time: a minute of a hundred nodes takes seconds, and the same
seed gives the same run.

The machines are the ones that real nodes run; what is simulated is the network, the clocks and the processes. After
each step the safety rules of `rules` are checked; a rule that breaks raises `RuleBroken`, which names the seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from mpreg.cluster import events
from mpreg.cluster.effects import Dial, Effect, NameTaken, NodeChanged, Send, WakeAt
from mpreg.cluster.machine import Machine
from mpreg.cluster.settings import LAN, ClusterSettings
from mpreg.testing.conditions import GOOD, Conditions
from mpreg.testing.process import Link, Process
from mpreg.testing.rules import RuleBroken
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.gossip import Gossip, NodeInfo

EPOCH = 1_700_000_000.0
"""What the clocks show at virtual time 0."""
CLUSTER_ID = "simulated"
JOIN_AGAIN_S = 1.0


class Simulation:
    """`record` keeps what the nodes were told to know; `count_bytes` encodes every message to know its size."""

    def __init__(
        self,
        seed: int,
        settings: ClusterSettings = LAN,
        conditions: Conditions = GOOD,
        *,
        record: bool = True,
        count_bytes: bool = False,
    ) -> None:
        self.seed = seed
        self.settings = settings
        self.conditions = conditions
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.processes: dict[str, Process] = {}
        """The last run of each node, by its id."""
        self.on_effect: Callable[[Process, Effect], None] | None = None
        self.lets_through: Callable[[str, str, Gossip], bool] | None = None
        """Asked for each message, with source and target: a fault of your own."""
        self._record = record
        self._count_bytes = count_bytes
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = itertools.count()
        self._runs = itertools.count(1)
        self._links: dict[str, dict[str, Link]] = {}
        """The last link of each pair, from both sides."""
        self._blocked: dict[tuple[str, str], int] = {}

    # Nodes.

    def start(
        self,
        node_id: str,
        join: Iterable[str] = (),
        *,
        clock_skew_s: float = 0.0,
        known: Iterable[NodeInfo] = (),
        meta: dict[str, str] | None = None,
    ) -> Process:
        """A node begins, or begins again after a crash. `join` are the nodes that it dials first."""
        old = self.processes.get(node_id)
        if old is not None and old.running:
            raise ValueError(f"{node_id} is running")
        run = next(self._runs)
        node = NodeInfo(
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            run_id=f"run{run}",
            started=EPOCH + self.now + clock_skew_s,
            advertised_urls=(f"memory://{node_id}",),
            meta=meta or {},
        )
        machine = Machine(
            node, self.settings, random.Random(f"{self.seed}/{node_id}/{run}"), EPOCH + clock_skew_s, known
        )
        process = self.processes[node_id] = Process(node, machine, tuple(each for each in join if each != node_id))
        self._step(process, events.Tick())
        self._join(process)
        return process

    def start_all(self, count: int, *, prefix: str = "n") -> list[Process]:
        """So many nodes, each of which joins the first one."""
        first = f"{prefix}0"
        return [self.start(f"{prefix}{number}", (first,) if number else ()) for number in range(count)]

    def start_formed(self, count: int, *, prefix: str = "n") -> list[Process]:
        """So many nodes that know and have links to each other already."""
        nodes = [
            NodeInfo(
                node_id=f"{prefix}{number}",
                cluster_id=CLUSTER_ID,
                run_id=f"run{number + 1}",
                started=EPOCH + self.now,
                advertised_urls=(f"memory://{prefix}{number}",),
            )
            for number in range(count)
        ]
        started = [self.start(node.node_id, known=nodes) for node in nodes]
        for a, b in itertools.combinations(started, 2):
            self._open(a, b)
        return started

    def crash(self, node_id: str, *, silently: bool = False) -> None:
        """The process is gone at this instant. `silently`: the machine is too, and nobody closes its links."""
        process = self._running(node_id)
        process.running = False
        process.waiting.clear()
        for link in self._links_of(process):
            if silently:
                self._at(self.conditions.link_timeout_s, self._close, link, "no answer to pings")
            else:
                self._at(self._delay(), self._close, link, "closed by the peer")

    def leave(self, node_id: str) -> None:
        """In good order: the node says goodbye and stops."""
        process = self._running(node_id)
        self._step(process, events.Leave())
        process.running = False
        for link in self._links_of(process):
            other = link.other(process)
            if (node_id, other.node_id) not in self._blocked:
                self._at(self._delay() + self.conditions.delay_max_s, self._farewell, link, process)
            self._at(2 * self.conditions.delay_max_s + self._delay(), self._close, link, "goodbye")

    def pause(self, node_id: str) -> None:
        """As SIGSTOP does it: the process stands still, its links stay, what it gets waits."""
        self._running(node_id).paused = True

    def resume(self, node_id: str) -> None:
        process = self.processes[node_id]
        process.paused = False
        waiting, process.waiting = process.waiting, []
        for deliver in waiting:
            deliver()
        if process.running:
            self._step(process, events.Tick())

    def tell(self, node_id: str, event: events.Event) -> None:
        """An event of the node itself: `Put`, `Propose`, …"""
        self._step(self._running(node_id), event)

    # The network.

    def block(self, sources: Collection[str], targets: Collection[str]) -> None:
        """Nothing comes through from these to those, until `heal`; the other way is not changed."""
        for source, target in itertools.product(sources, targets):
            if source != target:
                self._blocked[source, target] = next(self._number)
                self._at(self.conditions.link_timeout_s, self._break_if_blocked, source, target)

    def partition(self, *groups: Collection[str]) -> None:
        """Nothing comes through between these groups, either way."""
        for one, other in itertools.permutations(groups, 2):
            self.block(one, other)

    def heal(self) -> None:
        """Everything comes through again. Links that broke have to be dialled again."""
        self._blocked.clear()

    def break_links(self, node_id: str) -> None:
        """All links of a node are cut, both ends notice; they may be dialled again at once."""
        for link in self._links_of(self._running(node_id)):
            self._close(link, "cut")

    # Time.

    def run(self, seconds: float) -> None:
        """Let this much virtual time pass."""
        until = self.now + seconds
        self._run(until)
        self.now = until

    def run_until(self, holds: Callable[[], bool], within_s: float, *, every_s: float = 0.1) -> float:
        """Let time pass until `holds`; returns how long it took, raises `RuleBroken` if that is too long."""
        began = self.now
        while not holds():
            if self.now - began > within_s:
                self.fail(f"did not come to hold within {within_s:g} s: {getattr(holds, '__name__', holds)}")
            self.run(every_s)
        return self.now - began

    # What is.

    def running(self) -> list[Process]:
        return [process for process in self.processes.values() if process.running]

    def agreed(self) -> bool:
        """Do all running nodes hold exactly the running nodes for alive, and the same shared state?"""
        running = self.running()
        expected = {process.node_id: process.machine.me for process in running}
        if len({process.machine.digest for process in running}) > 1:
            return False
        return all(self._knows(process, expected) for process in running)

    def linked(self) -> bool:
        """Has every pair of running nodes a link?"""
        running = self.running()
        pairs = len(running) * (len(running) - 1) // 2
        found = sum(
            1
            for process in running
            for link in self._links.get(process.node_id, {}).values()
            if link.open and link.a.running and link.b.running
        )
        return found == 2 * pairs

    def changes(self, node_id: str) -> Iterator[tuple[float, NodeChanged]]:
        """What this node was told of others, with the time."""
        for at, effect in self.processes[node_id].effects:
            if isinstance(effect, NodeChanged):
                yield at, effect

    def deaths(self) -> list[tuple[float, str, str]]:
        """When which node was held for dead by whom."""
        return [
            (at, change.node.node_id, process.node_id)
            for process in self.processes.values()
            for at, change in self.changes(process.node_id)
            if change.state == "dead"
        ]

    def fail(self, why: str) -> None:
        raise RuleBroken(f"{why} [seed {self.seed}, at {self.now:.3f} s of virtual time]")

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Names the seed of whatever goes wrong inside."""
        try:
            yield
        except RuleBroken:
            raise
        except Exception as problem:
            problem.add_note(f"[seed {self.seed}, at {self.now:.3f} s of virtual time]")
            raise

    # Inside.

    def _knows(self, process: Process, expected: dict[str, NodeInfo]) -> bool:
        alive = {
            member.node.node_id: member.node
            for member in process.machine.members().values()
            if member.state in ("alive", "suspect")
        }
        alive[process.node_id] = process.machine.me
        return alive == expected

    def _running(self, node_id: str) -> Process:
        process = self.processes[node_id]
        if not process.running:
            raise ValueError(f"{node_id} does not run")
        return process

    def _links_of(self, process: Process) -> list[Link]:
        links = self._links.get(process.node_id, {}).values()
        return [link for link in links if link.open and (process is link.a or process is link.b)]

    def _link(self, a: str, b: str) -> Link | None:
        return self._links.get(a, {}).get(b)

    def _delay(self) -> float:
        return self.random.uniform(self.conditions.delay_min_s, self.conditions.delay_max_s)

    def _at(self, delay: float, do: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._number), do, args))

    def _run(self, until: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= until:
            at, _number, do, args = heapq.heappop(queue)
            self.now = at
            do(*args)

    def _step(self, process: Process, event: events.Event) -> None:
        if not process.running:
            return
        if process.paused:
            process.waiting.append(lambda: self._step(process, event))
            return
        self.steps += 1
        try:
            effects = process.machine.step(self.now, event)
            process.rules.check(process.machine, effects)
        except RuleBroken as problem:
            self.fail(f"{process.node_id}: {problem}")
        except Exception as problem:
            problem.add_note(f"[seed {self.seed}, at {self.now:.3f} s of virtual time, {process.node_id}: {event}]")
            raise
        for effect in effects:
            if type(effect) is Send:
                self._send(process, effect.node_id, effect.message)
            elif type(effect) is WakeAt:
                self._wake(process, effect.at)
            elif type(effect) is Dial:
                self._at(self._delay(), self._dial, process, effect.node_id)
            else:
                if self._record:
                    process.effects.append((self.now, effect))
                if self.on_effect is not None:
                    self.on_effect(process, effect)
                if type(effect) is NameTaken:
                    self._at(0.0, self._stop, process)

    def _stop(self, process: Process) -> None:
        if process.running:
            process.running = False
            for link in self._links_of(process):
                self._at(self._delay(), self._close, link, "closed by the peer")

    def _wake(self, process: Process, at: float) -> None:
        """One entry in the queue a process, moved only if it has to be earlier."""
        process.wake_at = at
        if at < process.woken_at:
            process.woken_at = at
            self._at(max(0.0, at - self.now), self._woken, process, at)

    def _woken(self, process: Process, at: float) -> None:
        if process.woken_at != at or not process.running:
            return
        process.woken_at = float("inf")
        if process.paused:
            return
        if process.wake_at <= self.now:
            self._step(process, events.Tick())
        else:
            self._wake(process, process.wake_at)

    def _send(self, process: Process, node_id: str, message: Gossip) -> None:
        process.sent += 1
        if self._count_bytes:
            process.sent_bytes += len(codec.encode(message, Encoding.MSGPACK))
        link = self._link(process.node_id, node_id)
        if link is None or not link.open or (process is not link.a and process is not link.b):
            return
        conditions = self.conditions
        if conditions.loss and self.random.random() < conditions.loss:
            return
        copies = 2 if conditions.duplication and self.random.random() < conditions.duplication else 1
        for _ in range(copies):
            arrives = self.now + self._delay()
            if not conditions.reordering or self.random.random() >= conditions.reordering:
                arrives = link.arrives[node_id] = max(arrives, link.arrives[node_id])
            heapq.heappush(
                self._queue, (arrives, next(self._number), self._deliver, (link, link.other(process), process, message))
            )

    def _deliver(self, link: Link, process: Process, sender: Process, message: Gossip) -> None:
        if link.open and (sender.node_id, process.node_id) not in self._blocked:
            if self.lets_through is not None and not self.lets_through(sender.node_id, process.node_id, message):
                return
            process.received += 1
            self._step(process, events.Received(sender.node_id, message))

    def _join(self, process: Process) -> None:
        """The part of a node's shell that dials the addresses it was given until one answers."""
        if process.running and process.seeds and not any(True for _ in self._links_of(process)):
            for seed in process.seeds:
                self._at(self._delay(), self._dial, process, seed)
            self._at(JOIN_AGAIN_S, self._join, process)

    def _dial(self, process: Process, node_id: str) -> None:
        other = self.processes.get(node_id)
        if other is None or not (process.running and other.running) or process.paused or other.paused:
            return
        if (process.node_id, node_id) in self._blocked or (node_id, process.node_id) in self._blocked:
            return
        link = self._link(process.node_id, node_id)
        if link is not None and link.open and {link.a, link.b} == {process, other}:
            return
        if other.machine.refuses(process.machine.me) or process.machine.refuses(other.machine.me):
            return
        if link is not None and link.open:
            self._close(link, "replaced")
        self._open(process, other)

    def _open(self, a: Process, b: Process) -> None:
        link = Link(a, b)
        self._links.setdefault(a.node_id, {})[b.node_id] = link
        self._links.setdefault(b.node_id, {})[a.node_id] = link
        self._step(a, events.Linked(b.machine.me))
        self._step(b, events.Linked(a.machine.me))

    def _close(self, link: Link, reason: str) -> None:
        if link.open:
            link.open = False
            self._step(link.a, events.Unlinked(link.b.node_id, reason))
            self._step(link.b, events.Unlinked(link.a.node_id, reason))

    def _farewell(self, link: Link, leaving: Process) -> None:
        if link.open:
            self._step(link.other(leaving), events.Farewell(leaving.node_id))

    def _break_if_blocked(self, source: str, target: str) -> None:
        blocked = self._blocked.get((source, target))
        link = self._link(source, target)
        if blocked is not None and link is not None and link.open:
            self._close(link, "no answer to pings")

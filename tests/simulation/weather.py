"""A cluster in bad weather, from one seed: nodes join, a few things go wrong one after the other, all is healed, and
then all must agree in time."""

from __future__ import annotations

import random
from collections.abc import Callable

from mpreg.cluster import timing
from mpreg.cluster.events import Put, Withdraw
from mpreg.cluster.owned import own_key
from mpreg.testing import AWFUL, BAD, GOOD, Conditions, Simulation

KINDS = (GOOD, BAD, AWFUL)


class Weather:
    """`nodes` nodes; `faults` things go wrong."""

    def __init__(self, seed: int, nodes: int, faults: int = 4, conditions: Conditions | None = None) -> None:
        self.random = random.Random(f"weather/{seed}")
        self.simulation = Simulation(seed, conditions=conditions or self.random.choice(KINDS))
        self.names = [f"n{number}" for number in range(nodes)]
        self.faults = faults
        self.skews = {name: self.random.choice((0.0, 0.0, 0.0, 240.0, -240.0)) for name in self.names}

    def play(self) -> float:
        """Returns how long agreement took after all was healed; raises `RuleBroken` if too long."""
        simulation = self.simulation
        with simulation.reported():
            for name in self.names:
                simulation.start(name, self.names[:1], clock_skew_s=self.skews[name])
            simulation.run(5)
            for _ in range(self.faults):
                self.random.choice(self._faults())()
                self._write()
                simulation.run(self.random.uniform(1, 15))
                if self.random.random() < 0.5:
                    simulation.heal()
            self.heal()
            return simulation.run_until(self._all_is_well, timing.agreement_s(simulation.settings, len(self.names)))

    def heal(self) -> None:
        simulation = self.simulation
        simulation.heal()
        simulation.conditions = GOOD
        for name in self.names:
            process = simulation.processes[name]
            if process.paused:
                simulation.resume(name)
            if not process.running:
                simulation.start(name, self.random.sample(self.names, min(3, len(self.names))))

    def _all_is_well(self) -> bool:
        simulation = self.simulation
        if not simulation.agreed():
            return False
        states = [simulation.processes[name].machine.state() for name in self.names[:16]]
        return all(state == states[0] for state in states)

    def _faults(self) -> list[Callable[[], None]]:
        return [self._partition, self._one_way, self._crash, self._pause, self._leave, self._cut]

    def _some(self) -> str | None:
        """A node to which something may happen; the first one stays, so that there always is one."""
        found = [
            name
            for name in self.names[1:]
            if self.simulation.processes[name].running and not self.simulation.processes[name].paused
        ]
        return self.random.choice(found) if found else None

    def _partition(self) -> None:
        names = self.random.sample(self.names, len(self.names))
        cut = self.random.randrange(1, len(names))
        self.simulation.partition(names[:cut], names[cut:])

    def _one_way(self) -> None:
        few = max(1, len(self.names) // 4)
        self.simulation.block(self.random.sample(self.names, few), self.random.sample(self.names, few))

    def _crash(self) -> None:
        name = self._some()
        if name is not None:
            self.simulation.crash(name, silently=self.random.random() < 0.5)

    def _pause(self) -> None:
        name = self._some()
        if name is not None:
            self.simulation.pause(name)

    def _leave(self) -> None:
        name = self._some()
        if name is not None:
            self.simulation.leave(name)

    def _cut(self) -> None:
        name = self._some()
        if name is not None:
            self.simulation.break_links(name)

    def _write(self) -> None:
        """Some node changes the shared state, whatever the weather."""
        name = self._some() or self.names[0]
        if self.simulation.processes[name].paused:
            return
        key = self.random.choice(["shared", "config.limit", own_key(name, "functions/0")])
        number = self.random.randrange(1000)
        self.simulation.tell(name, Put(key, number) if self.random.random() < 0.8 else Withdraw(key))

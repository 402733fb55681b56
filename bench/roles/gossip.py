"""A simulated cluster that is at rest, gets news, and loses a node."""

from __future__ import annotations

import random
import statistics

import msgspec

from bench.role import Orders
from mpreg.cluster.effects import Effect, StateChanged
from mpreg.cluster.events import Put
from mpreg.cluster.settings import LAN
from mpreg.testing import Process, Simulation

KEYS = 11
REST_S = 20.0
SETTINGS = msgspec.structs.replace(LAN, seen_ids_max=512)

Cases = dict[str, dict[str, tuple[float, str]]]


async def simulate(orders: Orders) -> None:
    orders.answer(ready=True)
    async for order in orders:
        orders.answer(cases=_measure(order["nodes"], random.randrange(1_000_000)))


def _measure(nodes: int, seed: int) -> Cases:
    simulation = Simulation(seed, SETTINGS, record=False, count_bytes=True)
    simulation.start_formed(nodes)
    simulation.run(15)
    return {
        "rest": _rest(simulation, nodes),
        "converge": _converge(simulation, nodes),
        "detect": _detect(simulation, nodes),
    }


def _rest(simulation: Simulation, nodes: int) -> dict[str, tuple[float, str]]:
    def total() -> tuple[int, int]:
        running = simulation.running()
        return sum(each.sent for each in running), sum(each.sent_bytes for each in running)

    messages, sent = total()
    simulation.run(REST_S)
    messages_then, sent_then = total()
    return {
        "messages": ((messages_then - messages) / nodes / REST_S, "/node/s"),
        "bytes": ((sent_then - sent) / nodes / REST_S, "B/node/s"),
    }


def _converge(simulation: Simulation, nodes: int) -> dict[str, tuple[float, str]]:
    rounds = []
    for number in range(KEYS):
        key = f"key{number}"
        known: dict[str, float] = {}

        def heard(process: Process, effect: Effect, key: str = key, known: dict[str, float] = known) -> None:
            if isinstance(effect, StateChanged) and effect.key == key:
                known[process.node_id] = simulation.now

        simulation.on_effect = heard
        began = simulation.now
        simulation.tell(f"n{simulation.random.randrange(nodes)}", Put(key, number))
        simulation.run(8)
        if len(known) < nodes:
            rounds.append(float("nan"))
        else:
            rounds.append((max(known.values()) - began) / SETTINGS.gossip_interval_s)
    simulation.on_effect = None
    complete = [each for each in rounds if each == each]
    return {
        "rounds": (statistics.median(complete), "rounds"),
        "rounds_max": (max(complete), "rounds"),
        "missed": (float(len(rounds) - len(complete)), f"of {KEYS}"),
    }


def _detect(simulation: Simulation, nodes: int) -> dict[str, tuple[float, str]]:
    gone = f"n{simulation.random.randrange(nodes)}"
    first: list[float] = []
    began = simulation.now
    simulation.crash(gone)

    def held_for_dead() -> bool:
        found = 0
        for process in simulation.running():
            member = process.machine.member(gone)
            found += member is not None and member.state == "dead"
        if found and not first:
            first.append(simulation.now - began)
        return found == nodes - 1

    last = simulation.run_until(held_for_dead, 300)
    return {"first": (first[0], "s"), "last": (last, "s")}

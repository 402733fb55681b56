"""Deaths: those that happen are noticed by all in time, those that don't are not invented, and what a node sends and
holds does not grow with the cluster."""

from __future__ import annotations

import random
from functools import partial

import msgspec
import pytest

from mpreg.cluster import timing
from mpreg.cluster.events import Put
from mpreg.cluster.owned import own_key
from mpreg.cluster.settings import LAN, LOCAL, WAN, ClusterSettings
from mpreg.testing import GOOD, Conditions, Simulation

LATE = Conditions(delay_min_s=0.001, delay_max_s=0.15)


def formed(seed: int, nodes: int, settings: ClusterSettings = LAN, conditions: Conditions = GOOD) -> Simulation:
    simulation = Simulation(seed, settings, conditions)
    simulation.start_formed(nodes)
    simulation.run_until(simulation.agreed, 10)
    return simulation


def holds_for_dead(simulation: Simulation, node_id: str) -> bool:
    found = (process.machine.member(node_id) for process in simulation.running())
    return all(member is not None and member.state == "dead" for member in found)


def sent_per_node_and_second(simulation: Simulation, seconds: float) -> float:
    before = sum(process.sent for process in simulation.running())
    simulation.run(seconds)
    return (sum(process.sent for process in simulation.running()) - before) / len(simulation.running()) / seconds


@pytest.mark.parametrize("settings", [LAN, WAN, LOCAL], ids=["lan", "wan", "local"])
@pytest.mark.parametrize("nodes", [2, 3, 16, 64])
@pytest.mark.parametrize("silently", [False, True])
def test_a_crash_is_noticed_by_all_in_time(nodes: int, settings: ClusterSettings, silently: bool) -> None:
    for seed in range(3):
        simulation = formed(seed, nodes, settings)
        simulation.run(seed)
        simulation.crash("n1", silently=silently)
        simulation.run_until(partial(holds_for_dead, simulation, "n1"), timing.detection_s(settings, nodes))
        assert {who for _, who, _ in simulation.deaths()} == {"n1"}


@pytest.mark.parametrize("conditions", [GOOD, LATE], ids=["good", "late"])
@pytest.mark.parametrize("nodes", [2, 3, 16, 64])
def test_without_a_fault_nobody_is_held_for_dead(nodes: int, conditions: Conditions) -> None:
    simulation = formed(1, nodes, conditions=conditions)
    simulation.run(300)
    assert simulation.deaths() == []
    assert simulation.agreed()


def test_many_that_crash_at_once_are_all_noticed() -> None:
    simulation = formed(3, 32)
    gone = [f"n{number}" for number in range(1, 16)]
    for node_id in gone:
        simulation.crash(node_id)
    simulation.run_until(
        lambda: all(holds_for_dead(simulation, node_id) for node_id in gone), timing.detection_s(LAN, 32)
    )
    assert {who for _, who, _ in simulation.deaths()} == set(gone)


def false_deaths(settings: ClusterSettings, seed: int, nodes: int = 40) -> tuple[int, int]:
    """A twentieth of the nodes are so slow that nine of ten messages come to nothing there; nobody crashes. How often
    one of the others was held for dead, and how often by one that is well itself."""
    simulation = formed(seed, nodes, settings)
    slow = {f"n{number}" for number in range(nodes // 20)}
    chance = random.Random(seed)
    simulation.lets_through = lambda source, target, message: target not in slow or chance.random() >= 0.9
    simulation.run(120)
    false = [by for _, who, by in simulation.deaths() if who not in slow]
    return len(false), sum(1 for by in false if by not in slow)


def test_local_health_keeps_slow_nodes_from_killing_others() -> None:
    """A slow node blames itself, and its suspicions alone take long to kill: a tenth of what it is without."""
    off = msgspec.structs.replace(LAN, awareness_max=1, suspicion_max_mult=1)
    without = [false_deaths(off, seed) for seed in range(3)]
    with_it = [false_deaths(LAN, seed) for seed in range(3)]
    assert all(false > 20 for false, _ in without)
    assert sum(false for false, _ in with_it) <= sum(false for false, _ in without) / 10
    assert all(by_others == 0 for _, by_others in with_it)


def test_what_a_node_sends_at_rest_does_not_grow_with_the_cluster() -> None:
    rates = []
    for nodes in (8, 32, 128):
        simulation = formed(1, nodes)
        simulation.run(20)
        rates.append(sent_per_node_and_second(simulation, 20))
    assert max(rates) < 5
    assert max(rates) < 1.25 * min(rates)


def test_two_hundred_and_fifty_six_nodes_notice_crashes_and_a_partition_and_find_together() -> None:
    simulation = formed(1, 256)
    for node_id in ("n1", "n2", "n3"):
        simulation.crash(node_id)
    simulation.run_until(simulation.agreed, timing.detection_s(LAN, 256))
    few = [f"n{number}" for number in range(4, 12)]
    simulation.partition(few, [process.node_id for process in simulation.running() if process.node_id not in few])
    simulation.run(60)
    simulation.heal()
    simulation.run_until(simulation.agreed, timing.agreement_s(LAN, 256))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_nodes_notice_crashes_lose_a_few_and_find_together() -> None:
    simulation = Simulation(1, msgspec.structs.replace(LAN, seen_ids_max=512), record=False)
    simulation.start_formed(1000)
    simulation.run_until(simulation.agreed, 10)
    assert sent_per_node_and_second(simulation, 10) < 5
    gone = [f"n{number}" for number in range(1, 11)]
    for node_id in gone:
        simulation.crash(node_id)
    simulation.run_until(simulation.agreed, timing.detection_s(LAN, 1000))
    for node_id in gone:
        simulation.start(node_id, ["n500", "n600"])
    simulation.run_until(simulation.agreed, 60)
    few = [f"n{number}" for number in range(10)]
    simulation.partition(few, [process.node_id for process in simulation.running() if process.node_id not in few])
    simulation.run(60)
    simulation.heal()
    simulation.run_until(simulation.agreed, timing.agreement_s(LAN, 1000))


def test_memory_stays_bounded_while_nodes_come_and_go_and_keys_change() -> None:
    settings = msgspec.structs.replace(LAN, dead_forget_s=60.0, tombstone_s=60.0, seen_ids_max=256)
    simulation = Simulation(5, settings, record=False)
    simulation.start_all(4)
    for number in range(60):
        simulation.start(f"passing{number}", ["n0"])
        simulation.tell(f"passing{number}", Put(own_key(f"passing{number}", "functions/0"), number))
        simulation.tell("n1", Put("counter", number))
        simulation.tell("n2", Put(f"for a while {number}", 1, ttl_s=5.0))
        simulation.run(3)
        if number % 2:
            simulation.leave(f"passing{number}")
        else:
            simulation.crash(f"passing{number}")
        simulation.run(5)
    simulation.run(200)
    simulation.run_until(simulation.agreed, 60)
    for process in simulation.running():
        core = process.machine._core
        assert len(core.members) == 3
        assert {entry.key for entry in core.state} == {"counter"}
        assert set(core.clock.counts) <= {"n0", "n1", "n2", "n3"}
        assert len(core.intake._seen) <= 256
        assert len(core.broadcasts) == 0
        assert len(core.timers) <= 8

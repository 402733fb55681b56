"""The simulation itself: the same seed gives the same run, and each fault does what it says."""

from __future__ import annotations

import pytest

from mpreg.cluster.events import Put
from mpreg.testing import AWFUL, BAD, GOOD, Conditions, RuleBroken, Simulation


def formed(count: int = 5, seed: int = 1, conditions: Conditions = GOOD) -> Simulation:
    simulation = Simulation(seed, conditions=conditions)
    simulation.start_all(count)
    simulation.run_until(lambda: simulation.agreed() and simulation.linked(), 30)
    return simulation


def states_of(simulation: Simulation, node_id: str) -> set[str]:
    found = [process.machine.member(node_id) for process in simulation.running() if process.node_id != node_id]
    return {member.state for member in found if member is not None}


def history(seed: int) -> list[object]:
    simulation = Simulation(seed, conditions=BAD)
    simulation.start_all(8)
    simulation.run(20)
    simulation.crash("n3")
    simulation.partition(["n0", "n1"], ["n2", "n4"])
    simulation.run(40)
    simulation.heal()
    simulation.run(40)
    return [(process.node_id, process.effects, process.sent) for process in simulation.processes.values()]


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    assert history(7) == history(7)
    assert history(7) != history(8)


def test_nodes_that_join_one_find_and_link_to_all() -> None:
    simulation = formed(8)
    for process in simulation.running():
        assert len(process.machine.members()) == 7
        assert all(member.linked for member in process.machine.members().values())


def test_a_crashed_node_is_found_dead_and_may_start_again() -> None:
    simulation = formed()
    simulation.crash("n2")
    simulation.run_until(lambda: states_of(simulation, "n2") == {"dead"}, 30)
    simulation.start("n2", ["n4"])
    simulation.run_until(simulation.agreed, 10)


def test_a_silent_crash_is_found_although_no_link_breaks() -> None:
    simulation = formed()
    simulation.crash("n2", silently=True)
    simulation.run_until(lambda: states_of(simulation, "n2") == {"dead"}, 40)


def test_a_node_that_leaves_is_not_dead() -> None:
    simulation = formed()
    simulation.leave("n2")
    simulation.run_until(lambda: states_of(simulation, "n2") == {"left"}, 1)
    assert not simulation.deaths()


def test_a_short_pause_is_forgiven() -> None:
    simulation = formed()
    simulation.pause("n2")
    simulation.run(3)
    simulation.resume("n2")
    simulation.run_until(simulation.agreed, 10)
    assert not simulation.deaths()


def test_a_paused_node_holds_nobody_for_dead_when_it_goes_on() -> None:
    simulation = formed()
    simulation.pause("n2")
    simulation.run_until(lambda: states_of(simulation, "n2") == {"dead"}, 60)
    simulation.resume("n2")
    simulation.run_until(simulation.agreed, 60)
    assert {who for _, who, _ in simulation.deaths()} == {"n2"}


def test_a_one_way_partition_kills_nobody_while_others_can_help() -> None:
    simulation = formed()
    simulation.block(["n1"], ["n2"])
    simulation.run(120)
    assert not simulation.deaths()
    simulation.heal()
    simulation.run_until(lambda: simulation.agreed() and simulation.linked(), 60)


def test_two_halves_hold_each_other_for_dead_and_find_together_again() -> None:
    simulation = formed(6)
    simulation.partition(["n0", "n1", "n2"], ["n3", "n4", "n5"])
    simulation.run_until(lambda: len(simulation.deaths()) == 18, 60)
    simulation.tell("n0", Put("colour", "red"))
    simulation.tell("n3", Put("shape", "round"))
    simulation.heal()
    simulation.run_until(lambda: simulation.agreed() and simulation.linked(), 60)
    for process in simulation.running():
        assert set(process.machine.state()) == {"colour", "shape"}


@pytest.mark.parametrize("conditions", [BAD, AWFUL])
def test_loss_disorder_and_copies_only_delay_agreement(conditions: Conditions) -> None:
    simulation = Simulation(3, conditions=conditions)
    simulation.start_all(8)
    simulation.run(60)
    simulation.conditions = GOOD
    simulation.run_until(simulation.agreed, 60)
    dropped = sum(process.machine.dropped["duplicate"] for process in simulation.running())
    assert dropped > 0


def test_clocks_that_differ_by_minutes_do_no_harm() -> None:
    simulation = Simulation(5)
    simulation.start("n0")
    for number, skew in enumerate((300.0, -300.0, 120.0), 1):
        simulation.start(f"n{number}", ["n0"], clock_skew_s=skew)
    simulation.run_until(simulation.agreed, 10)
    simulation.tell("n1", Put("colour", "red"))
    simulation.run_until(simulation.agreed, 10)
    simulation.run(120)
    assert not simulation.deaths()


def test_a_node_that_answers_probes_but_nothing_else_is_no_harm_to_others() -> None:
    simulation = formed(6)
    simulation.lets_through = lambda source, target, message: (
        target != "n1" or message.message_type == "membership_probe"
    )
    simulation.tell("n0", Put("colour", "red"))
    simulation.crash("n2")
    simulation.run(60)
    for process in simulation.running():
        if process.node_id != "n1":
            assert set(process.machine.state()) == {"colour"}
            member = process.machine.member("n2")
            assert member is not None
            assert member.state == "dead"
    assert {who for _, who, by in simulation.deaths() if by != "n1"} == {"n2"}


def test_what_does_not_come_true_names_the_seed() -> None:
    simulation = formed(3, seed=99)
    with pytest.raises(RuleBroken, match="seed 99"):
        simulation.run_until(lambda: False, 1)


def test_conditions_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="loss"):
        Conditions(loss=1.5)
    with pytest.raises(ValueError, match="delay"):
        Conditions(delay_min_s=1, delay_max_s=0.5)

"""Whatever happens, the safety rules hold at each step (`mpreg.testing.rules`), and once all is healed, all living
nodes agree on who lives and what is shared, within the promised time.

A failure names its seed; `python -m tests.simulation.again SEED NODES` plays it again and tells what was known to whom.
"""

from __future__ import annotations

import pytest
from tests.simulation.weather import Weather

CI = [(3, range(120)), (16, range(120, 194)), (64, range(194, 200))]
"""200 seeds, most of them small: what goes wrong with many nodes mostly goes wrong with three, in a hundredth of the
time."""
ALL = [(3, range(1000, 5400)), (16, range(5400, 5880)), (64, range(5880, 5990)), (256, range(5990, 6000))]
"""5,000 seeds."""


def slices(plan: list[tuple[int, range]], size: int) -> list[tuple[int, range]]:
    """A test each, so that two processes share them."""
    return [
        (nodes, seeds[at : at + max(1, size // nodes)])
        for nodes, seeds in plan
        for at in range(0, len(seeds), max(1, size // nodes))
    ]


def play(nodes: int, seeds: range) -> None:
    for seed in seeds:
        Weather(seed, nodes).play()


@pytest.mark.parametrize(("nodes", "seeds"), slices(CI, 150), ids=str)
def test_all_agree_in_time_after_whatever_happened(nodes: int, seeds: range) -> None:
    play(nodes, seeds)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("nodes", "seeds"), slices(ALL, 1200), ids=str)
def test_all_agree_in_time_after_whatever_happened_five_thousand_times(nodes: int, seeds: range) -> None:
    play(nodes, seeds)


def test_the_seeds_are_as_many_as_promised() -> None:
    assert sum(len(seeds) for _, seeds in CI) == 200
    assert sum(len(seeds) for _, seeds in ALL) == 5000

"""The formulas: suspicion, local health, how often news is told."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.cluster import timing
from mpreg.cluster.awareness import Awareness
from mpreg.cluster.settings import LAN, LOCAL, PRESETS, WAN
from mpreg.cluster.suspicion import Suspicion


def test_there_are_presets_for_lan_wan_and_one_machine_and_lan_is_the_default() -> None:
    assert PRESETS == {"lan": LAN, "wan": WAN, "local": LOCAL}
    assert type(LAN)() == LAN
    assert (LAN.probe_interval_s, LAN.probe_timeout_s, LAN.gossip_interval_s) == (1.0, 0.5, 0.2)
    assert (WAN.probe_interval_s, WAN.probe_timeout_s, WAN.gossip_interval_s) == (5.0, 3.0, 0.5)
    assert (LOCAL.probe_interval_s, LOCAL.probe_timeout_s, LOCAL.gossip_interval_s) == (1.0, 0.2, 0.1)


@pytest.mark.parametrize(
    ("nodes", "least", "most", "told", "compared"),
    [(1, 4.0, 24.0, 4, 30.0), (10, 4.0, 24.0, 8, 30.0), (100, 8.0, 48.0, 12, 90.0), (1000, 12.0, 72.0, 16, 180.0)],
)
def test_times_grow_with_the_logarithm_of_the_size(
    nodes: int, least: float, most: float, told: int, compared: float
) -> None:
    assert timing.suspicion_min_s(LAN, nodes) == pytest.approx(least)
    assert timing.suspicion_max_s(LAN, nodes) == pytest.approx(most)
    assert timing.retransmits(LAN, nodes) == told
    assert timing.anti_entropy_s(LAN, nodes) == pytest.approx(compared)


def test_in_a_cluster_too_small_for_confirmations_none_is_wanted() -> None:
    assert [timing.confirmations_wanted(LAN, nodes) for nodes in (2, 3, 4, 100)] == [0, 0, 2, 2]


def test_a_suspicion_lasts_longest_alone_and_shortest_when_enough_confirm_it() -> None:
    suspicion = Suspicion(10.0, "a", 3, 2.0, 30.0)
    ends = [suspicion.ends_at]
    for accuser in "bcd":
        assert suspicion.confirm(accuser)
        ends.append(suspicion.ends_at)
    assert ends[0] == 40.0
    assert ends == sorted(ends, reverse=True)
    assert ends[0] - ends[1] > ends[1] - ends[2]  # the first confirmation says most
    assert ends[-1] == 12.0


def test_who_has_said_it_before_confirms_nothing_nor_does_one_too_many() -> None:
    suspicion = Suspicion(0.0, "a", 1, 2.0, 30.0)
    assert not suspicion.confirm("a")
    assert suspicion.confirm("b")
    assert not suspicion.confirm("b")
    assert not suspicion.confirm("c")


def test_without_confirmations_to_wait_for_the_shortest_time_holds() -> None:
    assert Suspicion(10.0, "a", 0, 2.0, 30.0).ends_at == 12.0


@given(st.lists(st.one_of(st.just(0), st.integers(1, 20))))
def test_local_health_stays_within_its_limits(changes: list[int]) -> None:
    awareness = Awareness(8)
    for change in changes:
        if change:
            awareness.worsen(change)
        else:
            awareness.improve()
        assert 0 <= awareness.score < 8
    assert awareness.stretch(0.5) == 0.5 * (1 + awareness.score)


def test_what_is_promised_is_made_of_the_settings() -> None:
    slower = msgspec.structs.replace(LAN, probe_interval_s=2.0, anti_entropy_interval_s=60.0)
    assert timing.agreement_s(slower, 5) == 2 * timing.agreement_s(LAN, 5)
    assert timing.detection_s(LAN, 5) < timing.agreement_s(LAN, 5)

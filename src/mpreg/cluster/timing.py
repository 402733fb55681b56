"""What follows from the settings and the size of the cluster. `nodes` counts this node too."""

from __future__ import annotations

import math

from mpreg.cluster.settings import ClusterSettings

LARGE_CLUSTER = 32
"""From so many nodes on, comparisons of whole states get rarer, as each finds out about more of them at once."""


def suspicion_min_s(settings: ClusterSettings, nodes: int) -> float:
    """How long a suspect has when many suspect it: long enough for the news to reach it and its answer to come back,
    which takes a number of intervals that grows with the logarithm of the size."""
    return settings.suspicion_mult * max(1.0, math.log10(max(1, nodes))) * settings.probe_interval_s


def suspicion_max_s(settings: ClusterSettings, nodes: int) -> float:
    """How long it has when only one node suspects it, which may be that one's own fault."""
    return settings.suspicion_max_mult * suspicion_min_s(settings, nodes)


def confirmations_wanted(settings: ClusterSettings, nodes: int) -> int:
    """So many others who suspect the same bring the time down to the minimum; none, in a cluster too small for it."""
    wanted = settings.suspicion_mult - 2
    return wanted if nodes - 2 >= wanted else 0


def retransmits(settings: ClusterSettings, nodes: int) -> int:
    """How often a node tells a piece of news, so that with many nodes hardly any misses it."""
    return settings.retransmit_mult * math.ceil(math.log10(nodes + 1))


def anti_entropy_s(settings: ClusterSettings, nodes: int) -> float:
    scale = 1 if nodes <= LARGE_CLUSTER else math.ceil(math.log2(nodes) - math.log2(LARGE_CLUSTER)) + 1
    return settings.anti_entropy_interval_s * scale


def agreement_s(settings: ClusterSettings, nodes: int) -> float:
    """The promise: so long after all faults have ended, all living nodes agree on who is there and on the state."""
    return 3 * suspicion_max_s(settings, nodes) + 2 * anti_entropy_s(settings, nodes)


def detection_s(settings: ClusterSettings, nodes: int) -> float:
    """The promise: so long after a crash every living node holds the crashed one for dead. It has to be probed (the
    order of probes is random, so by someone soon, by everyone within `nodes` intervals), be suspected for at most the
    longest time, and the news has to go round."""
    rounds = math.ceil(math.log2(max(2, nodes)))
    first_probe_s = 2 * settings.probe_interval_s * (1 + settings.awareness_max)
    return first_probe_s + suspicion_max_s(settings, nodes) + rounds * settings.probe_interval_s

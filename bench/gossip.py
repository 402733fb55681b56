"""News and rest of a cluster, in simulation: figures of the protocol, the same on every machine.

`converge`: how many rounds of gossip (0.2 s) it takes until every node knows a key that one has put, median and maximum
of eleven keys. `log2` is the logarithm of the size, the bound that gossip promises. `serf-model` is no measurement, but
what the makers of memberlist publish for it: the "Convergence Simulator" of Serf's documentation says for its default
of three nodes a round how many rounds it takes until 99.99 % of the nodes know.
`detect`: how long until every node holds a crashed one for dead. `rest`: what a node sends each second when nothing
happens, with LAN settings; every message carries the whole envelope of the protocol.
"""

from __future__ import annotations

import math

from bench.plan import Aim, Measured, Ours, Peer
from bench.runner import Context

ROLE = "bench.roles.gossip:simulate"
SIZES = (16, 64, 256, 1000)

PEERS = (
    Peer("mpreg", ROLE, (Ours("mpreg.testing:Simulation"),)),
    Peer("log2", ""),
    Peer("serf-model", ""),
)
MODELS = ("log2", "serf-model")
SERF_FANOUT = 3
SERF_CONVERGED = 0.9999

AIMS = (
    *(Aim(f"gossip.converge.{size}", "rounds", "mpreg", "log2", at_most=1) for size in SIZES),
    *(Aim(f"gossip.converge.{size}", "rounds_max", "mpreg", "log2", at_most=1) for size in SIZES),
    *(Aim(f"gossip.converge.{size}", "rounds_max", "mpreg", "serf-model") for size in SIZES),
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    sizes = [size for size in SIZES if context.options.wants_case(f"gossip.converge.{size}")]
    if peer.name in MODELS:
        rounds = math.log2 if peer.name == "log2" else _serf_rounds
        return {f"gossip.converge.{size}": _modelled(rounds(size)) for size in sizes}
    measured = {}
    for size in sizes:
        with context.role(peer.roles, {}) as role:
            answer = role.ask({"nodes": size}, timeout_s=600)
            for case, figures in answer["cases"].items():
                measured[f"gossip.{case}.{size}"] = Measured(
                    {name: (value, unit) for name, (value, unit) in figures.items()}
                )
    return measured


def _serf_rounds(nodes: int) -> float:
    """After x rounds 1 / (1 + (nodes + 1) e^(-fanout x / 2)) of the nodes know, says the simulator; solved for x."""
    unknowing = 1 / SERF_CONVERGED - 1
    return 2 / SERF_FANOUT * math.log((nodes + 1) / unknowing)


def _modelled(rounds: float) -> Measured:
    return Measured({"rounds": (rounds, "rounds"), "rounds_max": (rounds, "rounds")})

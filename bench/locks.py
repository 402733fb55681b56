"""Locks on one Valkey over TCP: pairs of acquire and release.

`alone` is one task, a pair after another; `64` has 64 tasks, each with a lock of its own; `contended8` is eight tasks
that want the same lock, each waiting for it. `ref-link` has no owner check by script, no fence, no renewal, nobody to
tell: SET NX and DELIFEQ on the bare link, the ceiling of the technique.
"""

from __future__ import annotations

from bench.plan import Aim, Measured, Module, Ours, Peer
from bench.runner import Context

TTL_S = 10

PEERS = (
    Peer("mpreg", "bench.roles.locks_mpreg", (Ours("mpreg.store.lock:Lock"),), server="valkey"),
    Peer("redis-py", "bench.roles.locks_redis_py", (Module("redis"),), server="valkey"),
    Peer("ref-link", "bench.roles.locks_link", server="valkey"),
)

CASES = {"locks.alone": 1, "locks.64": 64, "locks.contended8": 8}

AIMS = (
    Aim("locks.64", "rate", "mpreg", "redis-py", at_least=6),
    Aim("locks.alone", "rate", "mpreg", "redis-py"),
    Aim("locks.contended8", "rate", "mpreg", "redis-py"),
    Aim("locks.64", "rate", "mpreg", "ref-link"),
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    broker = context.server(peer)
    assert broker is not None
    measured = {}
    for case, callers in CASES.items():
        contended = case.endswith("contended8")
        if not context.options.wants_case(case) or (contended and peer.name.startswith("ref-")):
            continue
        with context.role(f"{peer.roles}:pairs", {"url": broker.url, "contended": contended}) as client:
            sessions = {"client": client.session, "broker": broker.sessions[0]}
            measured[case] = context.metered(client, {"callers": callers, "secs": context.secs}, sessions)
    return measured

"""Requests and replies through one Valkey, 64 bytes each way, over its unix socket where the client can.

`floor` is what the protocol costs at least: SET, event, GET, SET, event, GET on a bare connection, without timeouts,
catch-up, errors or more than one frontend. The task queues answer the same question, "run this and give me the result".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.plan import Aim, Measured, Module, Peer

if TYPE_CHECKING:
    from bench.runner import Context  # which imports MPREG; arq's environment has none

DATA = b"x" * 64

PEERS = (
    Peer("mpreg", "bench.roles.muf_mpreg", server="valkey"),
    Peer("mpreg-claims", "bench.roles.muf_mpreg", server="valkey", config={"group": "WORKERS"}),
    Peer("floor", "bench.roles.muf_floor", server="valkey"),
    Peer("redis-py-blpop", "bench.roles.muf_blpop", (Module("redis"),), server="valkey"),
    Peer("taskiq-redis", "bench.roles.muf_taskiq", (Module("taskiq_redis"),), server="valkey"),
    Peer("arq", "bench.roles.muf_arq", server="valkey", venv="arq"),
)

CASES = {"muf.seq": 1, "muf.64": 64}

AIMS = (
    Aim("muf.seq", "p50", "mpreg", "floor", at_most=1.5),
    *(Aim("muf.64", "rate", "mpreg", peer, at_least=1) for peer in ("redis-py-blpop", "taskiq-redis", "arq")),
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    server = context.server(peer)
    assert server is not None
    config = {**peer.config, "url": server.url, "socket": server.socket_path}
    with (
        context.role(f"{peer.roles}:serve", config, venv=peer.venv) as backend,
        context.role(f"{peer.roles}:ask", config, venv=peer.venv) as frontend,
    ):
        sessions = {"frontend": frontend.session, "backend": backend.session, "valkey": server.sessions[0]}
        return {
            case: context.metered(frontend, {"callers": callers, "secs": context.secs}, sessions)
            for case, callers in CASES.items()
            if context.options.wants_case(case)
        }

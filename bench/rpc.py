"""Calls: a client asks a Python function in another process to return 64 bytes.

`seq` is one call after another; `seq_1core` the same with all processes on one core, which shows the software and not
how long the machine takes to wake a core; `64` has 64 calls under way. `ref-*` peers are sketches on bare building
blocks, without errors, timeouts or functions to look up: the ceiling of a technique. `tcp-echo` sends bytes back.
"""

from __future__ import annotations

from bench.plan import Aim, Measured, Module, Peer
from bench.runner import Context
from bench.servers import NATS_SERVER

TEXT = "x" * 64

PEERS = (
    Peer("mpreg-ws", "bench.roles.rpc_mpreg", config={"scheme": "ws"}),
    Peer("mpreg-tcp", "bench.roles.rpc_mpreg", config={"scheme": "tcp"}),
    Peer("nats-py", "bench.roles.rpc_nats", (Module("nats"), NATS_SERVER), server="nats"),
    Peer("grpc.aio", "bench.roles.rpc_grpc", (Module("grpc"), Module("google.protobuf"))),
    Peer("websockets", "bench.roles.rpc_websockets", (Module("websockets"),)),
    Peer("ref-picows-json", "bench.roles.rpc_picows"),
    Peer("ref-msgspec-tcp", "bench.roles.rpc_msgspec"),
    Peer("tcp-echo", "bench.roles.rpc_tcp"),
)

CASES = {"rpc.seq": 1, "rpc.seq_1core": 1, "rpc.64": 64}

AIMS = (
    *(Aim("rpc.seq_1core", "p50", ours, "ref-picows-json", at_most=2) for ours in ("mpreg-ws", "mpreg-tcp")),
    Aim("rpc.64", "rate", "mpreg-tcp", "ref-msgspec-tcp", at_least=0.4),
    Aim("rpc.64", "rate", "mpreg-tcp", "nats-py", at_least=2.5),
    Aim("rpc.64", "rate", "mpreg-tcp", "grpc.aio", at_least=8),
    Aim("rpc.64", "rate", "mpreg-ws", "nats-py", at_least=2),
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    broker = context.server(peer)
    config = dict(peer.config) if broker is None else {**peer.config, "url": broker.url}
    with (
        context.role(f"{peer.roles}:serve", config) as server,
        context.role(f"{peer.roles}:ask", {**config, **server.ready}) as client,
    ):
        sessions = {"client": client.session, "server": server.session}
        if broker is not None:
            sessions["broker"] = broker.sessions[0]
        return {
            case: context.metered(
                client, {"callers": callers, "secs": context.secs}, sessions, pinned=case.endswith("_1core")
            )
            for case, callers in CASES.items()
            if context.options.wants_case(case)
        }

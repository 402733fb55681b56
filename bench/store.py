"""The store's link: SET and GET of 100 bytes by 1, 64 and 512 callers at a time, each waiting for its reply.

All on the unix socket of one Valkey; `valkey-glide` can't, so it is on TCP, and `mpreg-tcp` beside it. `ref-link` is a
bare connection of 40 lines that all callers share: the ceiling of the technique in Python, without limits, reconnects,
errors or cancellation. `redis-benchmark -P` writes so many commands at once and waits for all: the server's ceiling.
"""

from __future__ import annotations

from bench.plan import Aim, Measured, Module, Ours, Peer, Program
from bench.runner import Context

VALUE = b"v" * 100
KEYS = 1000

_OURS = (Ours("mpreg.store:connect"),)
_BENCHMARK = Program("redis-benchmark", "apt-get install redis-tools")

PEERS = (
    Peer("mpreg", "bench.roles.store_mpreg", _OURS, server="valkey"),
    Peer("redis-py", "bench.roles.store_redis_py", (Module("redis"),), server="valkey"),
    Peer("valkey-py", "bench.roles.store_valkey_py", (Module("valkey"),), server="valkey"),
    Peer("coredis", "bench.roles.store_coredis", (Module("coredis"),), server="valkey"),
    Peer("mpreg-tcp", "bench.roles.store_mpreg", _OURS, server="valkey", config={"tcp": True}),
    Peer("valkey-glide", "bench.roles.store_glide", (Module("glide"),), server="valkey"),
    Peer("ref-link", "bench.roles.store_link", server="valkey"),
    Peer("redis-benchmark", "bench.roles.store_benchmark", (_BENCHMARK,), server="valkey"),
)

CASES = {f"store.{verb}.{callers}": (verb, callers) for callers in (1, 64, 512) for verb in ("get", "set")}

AIMS = (
    *(
        Aim(f"store.{verb}.64", "rate", "mpreg", peer, at_least=4)
        for verb in ("get", "set")
        for peer in ("redis-py", "valkey-py", "coredis", "valkey-glide")
    ),
    *(
        Aim(f"store.{verb}.{callers}", "rate", "mpreg", "ref-link", at_least=0.8)
        for verb in ("get", "set")
        for callers in (64, 512)
    ),
    *(
        Aim(f"store.{verb}.1", "p50", "mpreg", peer, at_most=1)
        for verb in ("get", "set")
        for peer in ("redis-py", "valkey-py", "coredis", "valkey-glide", "ref-link")
    ),
    Aim("store.get.64", "rate", "mpreg-tcp", "valkey-glide", at_least=4),
    Aim("store.get.64", "rate", "mpreg", "redis-benchmark"),
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    broker = context.server(peer)
    assert broker is not None
    config = {**peer.config, "url": broker.url, "path": broker.socket_path}
    with context.role(f"{peer.roles}:calls", config) as client:
        sessions = {"client": client.session, "broker": broker.sessions[0]}
        return {
            case: context.metered(client, {"verb": verb, "callers": callers, "secs": context.secs}, sessions)
            for case, (verb, callers) in CASES.items()
            if context.options.wants_case(case)
        }

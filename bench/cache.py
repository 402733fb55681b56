"""The cache over the wire: 100 bytes by 1 and 64 callers at a time, from 1,000 keys, all over TCP on loopback.

`get` may be answered from the node's memory (L1), which is what a cache of several levels is for; `get_strong`, `put`
and `incr` go through the node to the store, a hop more than the peers make: they talk to the same Valkey directly.
`mpreg-near` holds values in the client's own process; `redis-py-unix` talks to Valkey by its unix socket.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.plan import Aim, Measured, Module, Ours, Peer
from bench.runner import Context

VALUE = "v" * 100
KEYS = 1000

_OURS = (Ours("mpreg.cache:CacheService"),)

PEERS = (
    Peer("mpreg", "bench.roles.cache_mpreg", _OURS, server="valkey"),
    Peer("mpreg-near", "bench.roles.cache_mpreg", _OURS, server="valkey", config={"near": KEYS}),
    Peer("redis-py", "bench.roles.cache_redis_py", (Module("redis"),), server="valkey"),
    Peer("redis-py-unix", "bench.roles.cache_redis_py", (Module("redis"),), server="valkey", config={"unix": True}),
    Peer("valkey-glide", "bench.roles.cache_glide", (Module("glide"),), server="valkey"),
)

CASES = {
    f"cache.{verb}.{callers}": (verb, callers) for verb in ("get", "get_strong", "put", "incr") for callers in (1, 64)
}

AIMS = (
    Aim("cache.get.1", "p50", "mpreg", "redis-py", at_most=1),
    Aim("cache.get.64", "rate", "mpreg", "redis-py", at_least=3),
    Aim("cache.get.1", "p50", "mpreg", "valkey-glide", at_most=1),
    Aim("cache.get.64", "rate", "mpreg", "valkey-glide", at_least=1),
    Aim("cache.get.64", "rate", "mpreg", "redis-py-unix"),
    Aim("cache.get.1", "p50", "mpreg-near", "redis-py", at_most=0.1),
    *(
        Aim(f"cache.{verb}.64", "rate", "mpreg", peer)
        for verb in ("get_strong", "put", "incr")
        for peer in ("redis-py", "valkey-glide")
    ),
    *(Aim(f"cache.{verb}.1", "p50", "mpreg", "redis-py") for verb in ("get_strong", "put", "incr")),
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    broker = context.server(peer)
    assert broker is not None
    config = {**peer.config, "url": broker.url, "path": broker.socket_path}
    with ExitStack() as stack:
        sessions = {"broker": broker.sessions[0]}
        if peer.name.startswith("mpreg"):
            node = stack.enter_context(context.role(f"{peer.roles}:serve", config))
            sessions["node"] = node.session
            config = {**config, **node.ready}
        client = stack.enter_context(context.role(f"{peer.roles}:calls", config))
        sessions["client"] = client.session
        return {
            case: context.metered(client, {"verb": verb, "callers": callers, "secs": context.secs}, sessions)
            for case, (verb, callers) in CASES.items()
            if context.options.wants_case(case)
        }

"""What a cache in memory keeps, and how fast it says so: replays of made-up traces, in one process, no network.

Keys are asked for in turn; what is not there is put. `zipf0.8`, `1.0`, `1.2`: some keys of 100,000 more often than
others; `scan`: Zipf 1.0 with a pass over new keys between; `loop`: half as many keys again as there is room for, over
and over. `1 %` and `10 %`: the room, in keys of 100,000. `get` is of keys that are there. The `mpreg-*` peers are what
a node's memory level is, with a clock and bounds by bytes. `optimum` knows the future (Belady).
"""

from __future__ import annotations

from bench.plan import Aim, Measured, Module, Peer
from bench.runner import Context

ROLE = "bench.roles.policies"

PEERS = (
    *(Peer(f"mpreg-{policy}", ROLE, config={"cache": f"mpreg:{policy}"}) for policy in ("s4lru", "cost", "w-tinylfu")),
    Peer("cachetools-LRU", ROLE, (Module("cachetools"),), config={"cache": "cachetools:LRUCache"}),
    Peer("cachetools-LFU", ROLE, (Module("cachetools"),), config={"cache": "cachetools:LFUCache"}),
    Peer("cachebox-LRU", ROLE, (Module("cachebox"),), config={"cache": "cachebox:LRUCache"}),
    Peer("cachebox-LFU", ROLE, (Module("cachebox"),), config={"cache": "cachebox:LFUCache"}),
    Peer("theine", ROLE, (Module("theine"),), config={"cache": "theine:"}),
    Peer("ref-ordereddict-LRU", ROLE, config={"cache": "ordereddict:"}),
    Peer("optimum", ROLE, config={"cache": "optimum:"}),
)

TRACES = ("zipf0.8", "zipf1.0", "zipf1.2", "scan", "loop")
ROOMS = {"1 %": 1_000, "10 %": 10_000}

AIMS = (
    *(Aim(f"policies.zipf1.0 {room}", "hits", "mpreg-w-tinylfu", "theine", at_least=0.98) for room in ROOMS),
    *(Aim(f"policies.{trace} {room}", "hits", "mpreg-w-tinylfu", "optimum") for trace in TRACES for room in ROOMS),
    Aim("policies.get", "rate", "mpreg-s4lru", "cachetools-LRU", at_least=1.0),
    Aim("policies.zipf1.0 1 %", "rate", "mpreg-s4lru", "cachetools-LRU"),
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    measured = {}
    with context.role(f"{peer.roles}:replay", peer.config) as role:
        sessions = {"cache": role.session}
        for trace in TRACES:
            for room, keys in ROOMS.items():
                case = f"policies.{trace} {room}"
                if context.options.wants_case(case):
                    order = {"trace": trace, "room": keys, "secs": context.secs}
                    measured[case] = context.metered(role, order, sessions)
        if context.options.wants_case("policies.get") and peer.name != "optimum":
            measured["policies.get"] = context.metered(role, {"secs": context.secs}, sessions)
    return measured

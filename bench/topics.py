"""Topics within one process: how long it takes to find whom a message goes to, and what a pattern costs in memory.

10,000 and 1,000,000 different patterns of up to four levels, each with a wildcard. `cold`: a topic that comes for the
first time in a long while; `hot`: one of 1,000 topics that come again and again. `bytes` is resident memory, with
collected garbage and without the texts of the patterns. `mpreg-exchange` is what a node asks for each message: the
trie, a check of the topic and a memo; `mpreg-trie` the trie alone; `ref-dict-trie` the usual way, a dict a node.
"""

from __future__ import annotations

from bench.plan import Aim, Measured, Peer
from bench.runner import Context

ROLE = "bench.roles.topics:match"

PEERS = (
    Peer("mpreg-exchange", ROLE, config={"peer": "exchange"}),
    Peer("mpreg-trie", ROLE, config={"peer": "trie"}),
    Peer("ref-dict-trie", ROLE, config={"peer": "dict"}),
)

CASES = {"topics.10k": 10_000, "topics.1m": 1_000_000}

AIMS = (
    *(
        Aim(case, "bytes", ours, "ref-dict-trie", at_most=0.4)
        for case in CASES
        for ours in ("mpreg-trie", "mpreg-exchange")
    ),
    *(Aim(case, "cold", "mpreg-trie", "ref-dict-trie", at_least=0.85) for case in CASES),
    *(Aim(case, "hot", "mpreg-exchange", "ref-dict-trie", at_least=14) for case in CASES),
)
"""A pattern in less than 250 bytes where a dict trie takes 620 to 720; 300,000 cold matches a second where it does
360,000; 5 million hot ones."""


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    measured = {}
    for case, count in CASES.items():
        if context.options.wants_case(case):
            with context.role(peer.roles, peer.config) as role:
                order = {"patterns": count, "secs": context.secs}
                measured[case] = context.metered(role, order, {"process": role.session})
    return measured

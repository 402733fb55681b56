"""100,000 small keys of one Valkey, kept: into a file, out of the store, and back.

Seconds each; aim: a backup in under 5.

`mpreg` is the command line as people run it, from the start of the process to its end, with checksums, undo backup and
re-check. `redis-py` is what one writes by hand: SCAN, then TYPE, PTTL and DUMP in pipelines of 500, JSON lines without
checksums; UNLINK and RESTORE the same way, without a look at what changed. What the care costs is the difference.
"""

from __future__ import annotations

from bench.plan import Aim, Measured, Module, Ours, Peer
from bench.runner import Context

KEYS = 100_000
PATTERN = "bench:temp:*"

PEERS = (
    Peer("mpreg", "bench.roles.keys_mpreg", (Ours("mpreg.keyspace.tools.backup:backup"),), server="valkey"),
    Peer("redis-py", "bench.roles.keys_redis_py", (Module("redis"),), server="valkey"),
)

VERBS = ("backup", "purge", "restore")

AIMS = tuple(Aim(f"keys.{verb}", "time", "mpreg", "redis-py") for verb in VERBS)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    """Each verb works on what the one before it left, so all of them run, whichever are wanted."""
    broker = context.server(peer)
    assert broker is not None
    with context.role(f"{peer.roles}:keep", {"url": broker.url}) as client:
        sessions = {"client": client.session, "broker": broker.sessions[0]}
        measured = {f"keys.{verb}": context.metered(client, {"verb": verb}, sessions) for verb in VERBS}
    return {case: result for case, result in measured.items() if context.options.wants_case(case)}

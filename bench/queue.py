"""Durable queues: one producer process, one consumer process (1 or 4 connections), 100-byte messages, both at the same
time. `rate` is send + receive + acknowledge, from the first send to the last acknowledgement; `left` is what was not
received. `1x1` has one send under way, `64x…` 64. What a crash may lose is in the peer's name: `everysec` the last
second, `always` nothing; JetStream syncs its files every two minutes, which is its default. The task queues run a task
instead. `depth` is the scripts alone while many messages wait: the server's time for one message, sent, claimed and
acknowledged in batches of 64, and how many bytes a waiting message takes, for messages that are alike and lie in the
store together, and for such that don't.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack

from bench.meters import Meter
from bench.plan import Aim, Measured, Module, Peer
from bench.runner import Context
from bench.servers import NATS_SERVER, RABBITMQ_SERVER, Server

ROLES = "bench.roles.queue"
DEPTH = "bench.roles.queue_depth"

PEERS = (
    Peer("mpreg-everysec", ROLES, server="valkey-everysec", config={"peer": "mpreg"}),
    Peer("mpreg-always", ROLES, server="valkey-always", config={"peer": "mpreg"}),
    Peer("nats-jetstream", ROLES, (Module("nats"), NATS_SERVER), "nats-jetstream", {"peer": "jetstream"}),
    Peer(
        "jetstream-confirmed-acks",
        ROLES,
        (Module("nats"), NATS_SERVER),
        "nats-jetstream",
        {"peer": "jetstream", "confirmed": True},
    ),
    Peer("redis-py-streams-pipelined", ROLES, (Module("redis"),), "valkey-everysec", {"peer": "streams"}),
    Peer("aio-pika", ROLES, (Module("aio_pika"), RABBITMQ_SERVER), "rabbitmq", {"peer": "aio_pika"}),
    Peer("taskiq-redis", ROLES, (Module("taskiq_redis"),), "valkey-everysec", {"peer": "taskiq"}),
    Peer("dramatiq", ROLES, (Module("dramatiq"),), "valkey-everysec", {"peer": "dramatiq"}),
    Peer("arq", ROLES, server="valkey-everysec", config={"peer": "arq"}, venv="arq"),
    *(
        Peer(f"mpreg-{size}-{kind}", DEPTH, server="valkey", config={"waiting": waiting, "alike": kind == "alike"})
        for kind in ("alike", "single")
        for size, waiting in (("1k", 1_000), ("1M", 1_000_000))
    ),
)

_RUNS = itertools.count()
CASES = {"queue.1x1": (1, 1), "queue.64x1": (64, 1), "queue.64x4": (64, 4)}

AIMS = (
    Aim("queue.depth", "server", "mpreg-1M-alike", "mpreg-1k-alike", at_most=1.2),
    Aim("queue.depth", "server", "mpreg-1M-single", "mpreg-1k-single", at_most=1.2),
    *(
        aim
        for case in ("queue.64x1", "queue.64x4")
        for aim in (
            Aim(case, "rate", "mpreg-everysec", "nats-jetstream", at_least=2.5),
            Aim(case, "rate", "mpreg-everysec", "jetstream-confirmed-acks"),
            Aim(case, "rate", "mpreg-everysec", "redis-py-streams-pipelined", at_least=1),
            *(Aim(case, "rate", "mpreg-everysec", peer, at_least=20) for peer in ("taskiq-redis", "dramatiq", "arq")),
        )
    ),
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    server = context.server(peer)
    assert server is not None
    if peer.roles == DEPTH:
        return _depth(peer, context, server)
    measured: dict[str, Measured] = {}
    for case, (in_flight, consumers) in CASES.items():
        if not context.options.wants_case(case):
            continue
        name = f"{peer.name}-{case}-{next(_RUNS)}".replace(".", "-")  # peers and rounds share a server
        config = {**peer.config, "url": server.url, "socket": server.socket_path, "name": name}
        with ExitStack() as stack:
            broker = stack.enter_context(context.role(f"{ROLES}:broker", config, venv=peer.venv))
            config |= broker.ready
            consumer = stack.enter_context(
                context.role(f"{ROLES}:consume", {**config, "consumers": consumers}, venv=peer.venv)
            )
            producer = stack.enter_context(context.role(f"{ROLES}:produce", config, venv=peer.venv))
            sessions = {"producer": producer.session, "consumer": consumer.session, "node": broker.session}
            with Meter({**sessions, "server": server.sessions[0]}) as meter:
                sent = producer.ask({"in_flight": in_flight, "secs": context.secs}, timeout_s=60 + 10 * context.secs)
                got = consumer.ask({"expect": sent["count"]}, timeout_s=120)
        took_s = max(1e-9, (got["last"] - sent["start"]) / 1e9)
        figures = {
            "rate": (got["count"] / took_s, "msgs/s"),
            "sent": (sent["rate"], "msgs/s"),
            "left": (float(sent["count"] - got["count"]), "msgs"),
        }
        measured[case] = Measured(figures, meter.cpu)
    return measured


def _depth(peer: Peer, context: Context, server: Server) -> dict[str, Measured]:
    case = "queue.depth"
    if not context.options.wants_case(case):
        return {}
    config = {**peer.config, "url": server.url, "socket": server.socket_path}
    with context.role(f"{DEPTH}:run", config) as role:
        sessions = {"client": role.session, "server": server.sessions[0]}
        return {case: context.metered(role, {"secs": context.secs}, sessions)}

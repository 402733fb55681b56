"""Topics: one publisher process, 100-byte payloads, 1 or 50 subscribers (each a connection) in one other process.

`flood` publishes as fast as it goes; `delivered` counts what all subscribers together got in a second. `half`
publishes at half of the rate that this peer reached, `same` at a rate that is the same for all: both for the time
from publish to callback. What did not arrive is `lost`. `ref-picows-hub` is a hub on bare WebSocket frames that
joins what came in one turn: no topics, no subscriptions, the ceiling of the technique.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from bench.meters import Meter
from bench.plan import Aim, Measured, Module, Peer
from bench.runner import Context
from bench.servers import NATS_SERVER, RABBITMQ_SERVER

ROLES = "bench.roles.pubsub"
SAME_RATE = 10_000
DELIVERIES_MAX = 1_500_000
"""Of one flood: some brokers hold what a subscriber has not read, and end it past a limit."""
SLOW_PEERS = {"aio-pika": 150_000, "redis-py": 500_000}
"""They would take minutes for more."""

PEERS = (
    Peer("mpreg-ws", ROLES, config={"peer": "mpreg", "scheme": "ws"}),
    Peer("mpreg-tcp", ROLES, config={"peer": "mpreg", "scheme": "tcp"}),
    Peer("nats-py", ROLES, (Module("nats"), NATS_SERVER), "nats", {"peer": "nats"}),
    Peer("redis-py", ROLES, (Module("redis"),), "valkey", {"peer": "redis_py", "pipeline": 1}),
    Peer("redis-py-pipeline", ROLES, (Module("redis"),), "valkey", {"peer": "redis_py", "pipeline": 64}),
    Peer("aio-pika", ROLES, (Module("aio_pika"), RABBITMQ_SERVER), "rabbitmq", {"peer": "aio_pika"}),
    Peer("pyzmq", ROLES, (Module("zmq"),), config={"peer": "zmq"}),
    Peer("zenoh", ROLES, (Module("zenoh"),), config={"peer": "zenoh"}),
    Peer("ref-picows-hub", ROLES, config={"peer": "picows"}),
)

CASES = {"flood": (1, 50), "half": (1,), "same": (1,)}

AIMS = tuple(
    aim
    for ours in ("mpreg-ws", "mpreg-tcp")
    for aim in (
        Aim("pubsub.flood.1", "delivered", ours, "nats-py", at_least=1),
        Aim("pubsub.flood.1", "delivered", ours, "pyzmq", at_least=1),
        Aim("pubsub.flood.50", "delivered", ours, "zenoh", at_least=1.5),
        Aim("pubsub.flood.50", "delivered", ours, "nats-py", at_least=5),
        Aim("pubsub.half.1", "p99", ours, "nats-py", at_most=1),
    )
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    measured: dict[str, Measured] = {}
    for subscribers in (1, 50):
        cases = [name for name, counts in CASES.items() if subscribers in counts]
        wanted = [name for name in cases if context.options.wants_case(f"pubsub.{name}.{subscribers}")]
        if wanted:
            measured |= _with_subscribers(peer, context, subscribers, wanted)
    return measured


def _with_subscribers(peer: Peer, context: Context, subscribers: int, cases: list[str]) -> dict[str, Measured]:
    broker = context.server(peer)
    config = dict(peer.config) if broker is None else {**peer.config, "url": broker.url}
    found: dict[str, Measured] = {}
    with ExitStack() as stack:
        hub = stack.enter_context(context.role(f"{ROLES}:hub", config))
        config |= hub.ready
        subscriber = stack.enter_context(context.role(f"{ROLES}:subscribe", {**config, "count": subscribers}))
        publisher = stack.enter_context(context.role(f"{ROLES}:publish", {**config, "count": subscribers}))
        sessions = {"publisher": publisher.session, "subscriber": subscriber.session}
        sessions |= {"hub": broker.sessions[0] if broker else hub.session}
        most = SLOW_PEERS.get(peer.name, DELIVERIES_MAX) // subscribers
        flood = _run(publisher, subscriber, sessions, context.secs, 0, most, subscribers)
        rates = {"half": flood.figures["published"][0] / 2, "same": SAME_RATE}
        for case in cases:
            name = f"pubsub.{case}.{subscribers}"
            if case == "flood":
                found[name] = flood
            else:
                found[name] = _run(
                    publisher, subscriber, sessions, context.secs, rates[case], DELIVERIES_MAX, subscribers
                )
    return found


def _run(
    publisher: Any, subscriber: Any, sessions: dict[str, int], secs: float, rate: float, most: int, subscribers: int
) -> Measured:
    timed = rate > 0
    subscriber.ask({"begin": True, "timed": timed})
    with Meter(sessions) as meter:
        sent = publisher.ask({"secs": secs, "rate": rate, "most": most}, timeout_s=60 + 10 * secs)
        got = subscriber.ask({"expect": sent["count"] * subscribers}, timeout_s=60)
    figures: dict[str, tuple[float, str]] = {"lost": (got["lost"], "%")}
    if timed:
        figures |= {"p50": (got["p50"], "us"), "p99": (got["p99"], "us"), "rate": (sent["rate"], "msgs/s")}
    else:
        figures |= {"delivered": (got["delivered"], "msgs/s"), "published": (sent["rate"], "msgs/s")}
    return Measured(figures, meter.cpu)

"""A cluster of real processes: what a hop between nodes costs, and what workers bring.

`direct` asks the node that has the function, `through` one that has to pass the call on; cases as in `rpc`.
`one-node` and `across` publish to a subscriber at the same or at another node. `workers-1` and `workers-2` run
a function that computes for 0.4 ms, called over 16 connections. On two cores a third process takes its time from the
other two: `*_1core` shows the software.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from bench.meters import Meter
from bench.plan import Aim, Measured, Peer
from bench.runner import Context

ROLES = "bench.roles.cluster"
TOPICS = "bench.roles.pubsub"
TOPIC_PEER = {"peer": "mpreg", "scheme": "tcp"}
DELIVERIES_MAX = 1_500_000
CONNECTIONS = 16

PEERS = (
    Peer("direct", ROLES, config={"hops": 0}),
    Peer("through", ROLES, config={"hops": 1}),
    Peer("one-node", ROLES, config={"topics": "same"}),
    Peer("across", ROLES, config={"topics": "other"}),
    Peer("workers-1", ROLES, config={"workers": 1}),
    Peer("workers-2", ROLES, config={"workers": 2}),
)

CALLS = {"cluster.seq": 1, "cluster.seq_1core": 1, "cluster.64": 64, "cluster.64_1core": 64}

AIMS = (
    Aim("cluster.64", "rate", "through", "direct", at_least=0.6),
    Aim("cluster.seq", "p50", "through", "direct", at_most=2),
    Aim("cluster.seq_1core", "p50", "through", "direct", at_most=2),
    Aim("cluster.flood", "delivered", "across", "one-node"),
    Aim("cluster.paced", "p50", "across", "one-node"),
    Aim("cluster.work", "rate", "workers-2", "workers-1", at_least=1.5),
)


def trial(peer: Peer, context: Context) -> dict[str, Measured]:
    if "workers" in peer.config:
        return _workers(peer, context)
    if "topics" in peer.config:
        return _topics(peer, context)
    return _calls(peer, context)


def _calls(peer: Peer, context: Context) -> dict[str, Measured]:
    wanted = {case: callers for case, callers in CALLS.items() if context.options.wants_case(case)}
    with ExitStack() as stack:
        provider, asked = _nodes(stack, context, apart=bool(peer.config["hops"]))
        client = stack.enter_context(context.role(f"{ROLES}:ask", {"url": asked.ready["url"]}))
        sessions = {"client": client.session, "asked": asked.session}
        if provider is not asked:
            sessions["provider"] = provider.session
        return {
            case: context.metered(
                client, {"callers": callers, "secs": context.secs}, sessions, pinned=case.endswith("_1core")
            )
            for case, callers in wanted.items()
        }


def _nodes(stack: ExitStack, context: Context, *, apart: bool) -> tuple[Any, Any]:
    """Who has the function, and who is asked."""
    one: dict[str, Any] = {"name": "one", "has": True, "cluster": "bench"}
    provider = stack.enter_context(context.role(f"{ROLES}:node", one))
    if not apart:
        return provider, provider
    other = {"name": "other", "has": False, "cluster": "bench", "join": provider.ready["url"]}
    return provider, stack.enter_context(context.role(f"{ROLES}:node", other))


def _topics(peer: Peer, context: Context) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    cases = [case for case in ("cluster.flood", "cluster.paced") if context.options.wants_case(case)]
    if not cases:
        return found
    with ExitStack() as stack:
        one, other = _nodes(stack, context, apart=peer.config["topics"] == "other")
        at = {**TOPIC_PEER, "count": 1}
        subscriber = stack.enter_context(context.role(f"{TOPICS}:subscribe", {**at, "url": one.ready["url"]}))
        publisher = stack.enter_context(context.role(f"{TOPICS}:publish", {**at, "url": other.ready["url"]}))
        sessions = {"publisher": publisher.session, "subscriber": subscriber.session, "node": one.session}
        if other is not one:
            sessions["other"] = other.session
        for case in cases:
            rate = 0 if case == "cluster.flood" else 10_000
            subscriber.ask({"begin": True, "timed": rate > 0})
            with Meter(sessions) as meter:
                order = {"secs": context.secs, "rate": rate, "most": DELIVERIES_MAX}
                sent = publisher.ask(order, timeout_s=60 + 10 * context.secs)
                got = subscriber.ask({"expect": sent["count"]}, timeout_s=60)
            figures: dict[str, tuple[float, str]] = {"lost": (got["lost"], "%")}
            if rate:
                figures |= {"p50": (got["p50"], "us"), "p99": (got["p99"], "us")}
            else:
                figures |= {"delivered": (got["delivered"], "msgs/s"), "published": (sent["rate"], "msgs/s")}
            found[case] = Measured(figures, meter.cpu)
    return found


def _workers(peer: Peer, context: Context) -> dict[str, Measured]:
    if not context.options.wants_case("cluster.work"):
        return {}
    with ExitStack() as stack:
        nodes = stack.enter_context(context.role(f"{ROLES}:workers", {"count": peer.config["workers"]}))
        asking = {"url": nodes.ready["url"], "connections": CONNECTIONS}
        client = stack.enter_context(context.role(f"{ROLES}:ask_workers", asking))
        order = {"callers": 64, "secs": context.secs}
        return {"cluster.work": context.metered(client, order, {"client": client.session, "nodes": nodes.session})}

"""`mpreg doctor`, for a node of a cluster: would the others let it in, and can they reach it?"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mpreg.cli.node_options import run

if TYPE_CHECKING:
    from mpreg.cli.doctor import Finding
    from mpreg.cluster.options import ClusterOptions
    from mpreg.node import Settings

SKEW_WARNING_S = 5.0

DO = {
    "CLUSTER_WRONG_SECRET": "give every node the same file with --cluster-secret-file",
    "CLUSTER_OTHER_CLUSTER": "say the same --cluster everywhere, or take that address out of --join",
    "CLUSTER_NOT_CLUSTERED": "start that node with --cluster, or take its address out of --join",
    "CLUSTER_NAME_TAKEN": "give this node another --name, or stop the one that has it",
    "CLUSTER_SECRET_REQUIRED": "give every node the same file with --cluster-secret-file",
    "PROTOCOL_UNSUPPORTED_VERSION": "run versions of MPREG with the same major version of the protocol",
    "TRANSPORT_CONNECTION_REFUSED": "start that node, open its port in the firewall, or correct the address in --join",
    "TIMEOUT_CONNECT": "open its port in the firewall, or correct the address in --join",
    "TRANSPORT_TLS": "give tls_ca, and the certificate and key that the other nodes ask for",
}


def cluster_findings(settings: Settings) -> Iterator[Finding]:
    from mpreg.cli.doctor import Finding
    from mpreg.errors import MpregError
    from mpreg.node.clustering import options_of

    try:
        options = options_of(settings)
    except MpregError as error:
        yield Finding("cluster", "problem", error.message, "correct the setting; docs/cluster.md explains them")
        return
    secret = "no secret: this machine only" if options.secret is None else "with a secret"
    yield Finding("cluster", "ok", f"{settings.cluster}, {secret}")
    yield from _seeds(options)
    for url in options.advertise:
        yield _advertised(url)


def _seeds(options: ClusterOptions) -> Iterator[Finding]:
    from mpreg.cli.doctor import Finding
    from mpreg.cluster.seeds import Seeds
    from mpreg.errors import MpregError

    try:
        urls = run(Seeds(options.join).urls())
    except MpregError as error:
        yield Finding("join", "problem", error.message, "docs/cluster.md says what --join takes")
        return
    if options.join and not urls:
        yield Finding("join", "problem", f"{' '.join(options.join)}: no address there", "correct --join")
    let_in = 0
    for url in urls:
        found = _seed(url, options)
        let_in += found.state != "problem"
        yield found
    if urls and not let_in:
        yield Finding("join", "problem", "no node lets this one in", "what stands above, for at least one of them")


def _seed(url: str, options: ClusterOptions) -> Finding:
    from mpreg.cli.doctor import Finding
    from mpreg.cluster.check import check
    from mpreg.errors import MpregError

    try:
        skew_s = run(check(url, options))
    except MpregError as error:
        if error.code == "CLUSTER_SELF":
            return Finding(url, "ok", "this node itself")
        do = DO.get(error.code, "")
        if error.retryable and len(options.join) > 1 and error.code != "CLUSTER_NAME_TAKEN":
            return Finding(url, "warning", error.message, do)
        return Finding(url, "problem", error.message, do)
    says = f"lets this node in; its clock is {abs(skew_s):.1f} s {'ahead' if skew_s > 0 else 'behind'}"
    if abs(skew_s) > options.figures.clock_skew_max_s:
        return Finding(url, "problem", f"{says}: its messages will seem expired", "set the clocks, best by NTP")
    if abs(skew_s) > SKEW_WARNING_S:
        return Finding(url, "warning", says, "set the clocks, best by NTP")
    refused = _refused(url, options)
    if refused:
        return Finding(url, "problem", refused, "open that port, or advertise an address that the others reach")
    return Finding(url, "ok", says)


def _refused(url: str, options: ClusterOptions) -> str:
    """That node has tried one of our addresses, and failed."""
    from mpreg.client import connect
    from mpreg.errors import MpregError

    async def ask() -> dict[str, str]:
        async with connect(url, tls=options.tls if url.startswith(("wss", "tcps")) else None, timeout_s=2) as client:
            return await client.call("mpreg.cluster.refusals", result_type=dict[str, str])

    try:
        refusals = run(ask())
    except (MpregError, ValueError):  # a listener for nodes only, for example
        return ""
    return next((f"it can't reach {mine}: {refusals[mine]}" for mine in options.advertise if mine in refusals), "")


def _advertised(url: str) -> Finding:
    from mpreg.cli.doctor import Finding
    from mpreg.transport.url import parse

    address = parse(url)
    what = f"advertise {url}"
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as problem:
        return Finding(what, "problem", f"{address.host}: {problem.strerror}", "advertise a name that the others know")
    for family, _, _, _, where in infos:
        with socket.socket(family) as probe:
            try:
                probe.bind((where[0], 0))
            except OSError:
                continue
            return Finding(what, "ok", f"{where[0]} is an address of this machine")
    says = f"{address.host} is no address of this machine"
    return Finding(what, "warning", says, "fine behind a forwarding router; else correct --advertise")

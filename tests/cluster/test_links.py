"""Links between nodes: over every transport, one a pair, there again after they break."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import make_certificates
from tests.cluster.nodes import Nodes, cluster, known_to, settings, until

from mpreg.cluster.links import Links
from mpreg.errors import ClusterError, ConfigError, MpregError
from mpreg.node import Node
from mpreg.node.clustering import options_of

pytestmark = pytest.mark.anyio


def node(name: str, **changes: Any) -> Node:
    made = Node(name, settings(**changes))
    made.function(name=f"on_{name}")(lambda: name)
    return made


def links(each: Node) -> Links:
    return each._started().services.in_cluster().cluster.links


async def both_called(nodes: Nodes, a: Node, b: Node) -> None:
    await until(lambda: known_to(a) == {b.name} and known_to(b) == {a.name})
    for one, other in ((a, b), (b, a)):
        async with connect_to(one) as client:
            assert await client.call(f"on_{other.name}") == other.name


def connect_to(each: Node) -> Any:
    from mpreg.client import connect

    return connect(each)


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
async def test_nodes_link_over(scheme: str) -> None:
    ports = {"tcp": "off", "ws": "off", scheme: 0}
    a, b = node("a", **ports), node("b", **ports)
    await a.start()
    try:
        b.settings = settings(**ports, name="b", join=(a.listeners[scheme],))
        await b.start()
        try:
            await both_called(Nodes(), a, b)
            assert links(b).nodes["a"].link.url.startswith(scheme)
            async with connect_to(a) as client:
                assert len(await client.call("echo", "x" * 6_000_000)) == 6_000_000
        finally:
            await b.stop(0)
    finally:
        await a.stop(0)


@pytest.mark.parametrize("scheme", ["tcps", "wss"])
async def test_nodes_that_show_certificates_need_no_secret(scheme: str, tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    shown = {"tls_cert": files.cert, "tls_key": files.key, "tls_ca": files.ca, "tls_require_client_cert": True}
    ports = {"tcp": "off", "ws": "off", scheme: 0, **shown}
    a = node("a", **ports)
    await a.start()
    try:
        b = node("b", **ports, join=(a.listeners[scheme],))
        await b.start()
        try:
            await both_called(Nodes(), a, b)
            assert links(a).nodes["b"].link.peer.certificate
        finally:
            await b.stop(0)
    finally:
        await a.stop(0)


async def test_a_port_for_nodes_only_takes_nodes_and_no_clients() -> None:
    from mpreg.client import connect

    a = node("a", cluster_port=0)
    async with cluster(a):
        url = links(a)._me().urls[0]
        assert url != a.listeners["tcp"]
        b = node("b", join=(url,))
        await b.start()
        try:
            await until(lambda: known_to(b) == {"a"})
        finally:
            await b.stop(0)
        with pytest.raises(MpregError):
            async with connect(url, timeout_s=2) as client:
                await client.call("echo", 1)


async def test_two_nodes_that_dial_each_other_at_once_keep_one_link() -> None:
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        each = [nodes.by_name[name] for name in "abc"]
        for round_number in range(10):
            for one in each:
                for other in each:
                    if other is not one:
                        links(one).close_link(other.name, ClusterError("TEST", "again"))
            dials = [links(one).dial(other.listeners["tcp"]) for one in each for other in each if other is not one]
            await asyncio.gather(*dials, return_exceptions=True)
            await until(lambda: all(known_to(one) == {"a", "b", "c"} - {one.name} for one in each), str(round_number))
        for one in each:
            for other in set("abc") - {one.name}:
                mine, theirs = links(one).nodes[other], links(nodes.by_name[other]).nodes[one.name]
                assert mine.dialled is not theirs.dialled


async def test_a_link_that_breaks_is_there_again() -> None:
    async with cluster(node("a"), node("b")) as nodes:
        a, b = nodes.by_name["a"], nodes.by_name["b"]
        for _ in range(3):
            old = links(a).nodes["b"]
            old.link.cut(MpregError("TEST", "cut"))
            await until(lambda old=old: links(a).nodes.get("b") not in (None, old))
            await both_called(nodes, a, b)


async def test_a_node_that_starts_again_under_its_name_is_let_in() -> None:
    async with cluster(node("a"), node("b")) as nodes:
        a = nodes.by_name["a"]
        for link in list(links(nodes.by_name["b"]).nodes.values()):
            link.link.cut(MpregError("TEST", "killed"))
        await nodes.by_name["b"].stop(0)
        again = node("b", join=(a.listeners["tcp"],))
        await again.start()
        try:
            await until(lambda: known_to(a) == {"b"} and known_to(again) == {"a"})
            assert links(a).nodes["b"].peer.run == again._started().services.in_cluster().cluster.run_id
        finally:
            await again.stop(0)


async def test_beyond_loopback_a_link_needs_a_secret_or_a_certificate() -> None:
    async with cluster(node("a")) as nodes:
        mine = links(nodes.by_name["a"])
        with pytest.raises(ClusterError) as raised:
            await mine.dial("tcp://192.0.2.1:1")
        assert raised.value.code == "CLUSTER_SECRET_REQUIRED"
        for host, certified in (("192.0.2.1", True), ("127.0.0.1", False), ("::1", False), ("localhost", False)):
            mine._check_secret(host, certified)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"host": "0.0.0.0"}, "cluster_secret_file"),
        ({"advertise": ("tcp://10.0.0.1:1",)}, "cluster_secret_file"),
        ({"advertise": "nonsense"}, "advertise"),
        ({"store": "embedded:"}, "store"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as raised:
        options_of(settings(**changes))
    assert raised.value.details["setting"] == setting


async def test_nothing_is_left_of_links_when_nodes_stop() -> None:
    before = asyncio.all_tasks()
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        kept = [links(each) for each in nodes.by_name.values()]
    await until(lambda: asyncio.all_tasks() <= before | {asyncio.current_task()})
    for each in kept:
        assert each.nodes == {}
        assert each._openings == set()
        assert each._tasks == set()

"""What real nodes of one cluster share: keys, news, votes; and what becomes of them when two have one name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cluster.nodes import cluster, links_of, settings, until
from tests.store.servers import StoreServers

from mpreg.cluster import service as cluster_service
from mpreg.cluster.owned import own_key
from mpreg.cluster.service import ClusterService
from mpreg.errors import ClusterError
from mpreg.node import Node
from mpreg.wire.gossip import CacheUpdate, Rumor

pytestmark = pytest.mark.anyio


def node(name: str, **changes: Any) -> Node:
    return Node(name, settings(**changes))


def cluster_of(each: Node) -> ClusterService:
    return each._started().services.in_cluster().cluster


async def test_a_key_that_one_node_sets_is_known_to_all_until_it_is_withdrawn() -> None:
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        services = [cluster_of(each) for each in nodes.by_name.values()]
        services[0].put("shared.key", {"x": [1]})
        await until(lambda: all("shared.key" in each.state for each in services))
        client = await nodes.client(nodes.by_name["c"])
        found = {each["key"]: each["value"] for each in await client.call("mpreg.cluster.state")}
        assert found["shared.key"] == {"x": [1]}
        services[0].withdraw("shared.key")
        await until(lambda: not any("shared.key" in each.state for each in services))


async def test_what_a_node_says_of_itself_goes_with_it() -> None:
    async with cluster(node("a"), node("b")) as nodes:
        a, b = (cluster_of(nodes.by_name[name]) for name in "ab")
        key = own_key("b", "queue/orders")
        b.put(key, {"type": "fifo"})
        await until(lambda: key in a.state)
        await nodes.by_name["b"].stop(0)
        await until(lambda: key not in a.state)


async def test_news_of_the_cache_reach_every_other_node_once() -> None:
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        services = {name: cluster_of(each) for name, each in nodes.by_name.items()}
        heard: list[tuple[str, str, Any]] = []
        for name, each in services.items():
            each.tell.cache.append(lambda sender, update, name=name: heard.append((name, sender, update.key)))
            each.tell.rumors["weather"] = lambda message, rumor, name=name: heard.append((name, "", rumor.data))
        services["a"].broadcast(CacheUpdate(operation="put", key={"namespace": "n", "identifier": "i"}))
        await until(lambda: len(heard) == 2)
        services["b"].broadcast(Rumor(name="weather", data="rain"))
        await until(lambda: len(heard) == 4)
        assert {name for name, _, _ in heard[:2]} == {"b", "c"}
        assert {(name, data) for name, _, data in heard[2:]} == {("a", "rain"), ("c", "rain")}


async def test_what_changes_in_the_cache_of_one_node_is_gossip_and_drops_what_the_others_hold(
    store_servers: StoreServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By gossip alone: the store's own channel says nothing here."""
    async with cluster(node("a", store=store_servers.url), node("b", store=store_servers.url)) as nodes:
        a, b = (nodes.by_name[name] for name in "ab")
        services = a._started().services
        assert services.changes is not None
        monkeypatch.setattr(services.changes, "announce", lambda _update: None)
        heard: list[CacheUpdate] = []
        cluster_of(b).tell.cache.append(lambda sender, update: heard.append(update))
        writer, reader = [await nodes.client(each) for each in (a, b)]
        await writer.cache("n").put("i", "old")
        await until(lambda: len(heard) == 1)
        assert await reader.cache("n").get("i") == "old"
        await writer.cache("n").put("i", "new")
        await until(lambda: len(heard) == 2)
        assert await reader.cache("n").get("i") == "new"
        assert heard[1].key == {"namespace": "n", "identifier": "i", "version": "v1"}
        assert heard[1].value_hash.startswith("sha256:")
        assert heard[1].metadata["version"] > heard[0].metadata["version"]
        cluster_of(a).broadcast(CacheUpdate(operation="burn", key=7))
        await until(lambda: len(heard) == 3)
        assert await reader.cache("n").get("i") == "new"


async def test_a_majority_accepts_a_proposal_and_its_value_is_everywhere() -> None:
    async with cluster(node("a"), node("b"), node("c")) as nodes:
        services = [cluster_of(each) for each in nodes.by_name.values()]
        decided = await asyncio.wait_for(services[1].propose("config.limit", 7), 30)
        assert decided.outcome == "accepted"
        await until(lambda: all("config.limit" in each.state for each in services))


async def test_a_node_that_stops_cancels_who_waits_for_its_proposal() -> None:
    async with cluster(node("a")) as nodes:
        service = cluster_of(nodes.by_name["a"])
        await nodes.by_name["a"].stop(0)
        with pytest.raises(ClusterError):
            assert service.machine is not None


async def test_of_two_nodes_with_one_name_the_first_stays_and_the_second_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_service, "NAME_S", 0.2)
    async with cluster(node("a"), node("b")) as nodes:
        first = nodes.by_name["a"]
        second = node("b", join=(first.listeners["tcp"],))
        await second.start()
        try:
            with pytest.raises(ClusterError) as raised:
                await asyncio.wait_for(second.failed(), 30)
            assert raised.value.code == "CLUSTER_NAME_TAKEN"
            assert links_of(second) == set()
        finally:
            await second.stop(0)
        assert links_of(first) == {"b"}
        assert cluster_of(first).links.nodes["b"].peer.run == cluster_of(nodes.by_name["b"]).run_id


async def test_a_node_that_leaves_on_request_goes_on_for_its_own_clients() -> None:
    async with cluster(node("a"), node("b")) as nodes:
        a, b = nodes.by_name["a"], nodes.by_name["b"]
        client = await nodes.client(b)
        assert await client.call("mpreg.cluster.leave") == "b"
        await until(lambda: cluster_of(a).machine.members()["b"].state == "left")
        assert await client.call("echo", 1) == 1

"""What nodes say to each other, in raw frames: HELLO and GOODBYE (R-G4), Internal RPC, topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.nodes import cluster, known_to, links_of, settings, until
from tests.cluster.raw_node import RawNode

from mpreg.client import connect
from mpreg.errors import MpregError
from mpreg.node import Node

pytestmark = pytest.mark.anyio

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    made = Node("a", settings(cluster_secret_file=str(tmp_path / "secret")))

    @made.function
    def add(a: int, b: int) -> int:
        return a + b

    @made.function
    def raises() -> None:
        raise ValueError("no")

    async with cluster(made):
        yield made


def url(node: Node) -> str:
    return node.listeners["tcp"]


def counts(node: Node) -> dict[str, int]:
    return node._started().services.in_cluster().cluster.links.counts


async def joined(node: Node, name: str = "raw", **said: Any) -> RawNode:
    raw = RawNode(name, secret=SECRET)
    answer = await raw.handshake(url(node), **said)
    assert answer["what"] == "HELLO", answer
    await until(lambda: name in links_of(node))
    return raw


# HELLO.


async def test_hello_is_answered_by_hello_and_tells_what_the_node_has(node: Node) -> None:
    async with RawNode("raw", secret=SECRET) as raw:
        answer = await raw.handshake(url(node))
        assert answer["what"] == "HELLO"
        assert answer["node_id"] == "a"
        assert {"add", "echo", "mpreg.nodes"} <= set(answer["funs"])
        assert answer["advertised_urls"] == [url(node)]


async def test_functions_of_hello_can_be_called_through_the_node(node: Node) -> None:
    raw = await joined(node, funs=["far"], locs=["gpu"], offers=[["far", ["gpu"], False]])
    async with connect(url(node)) as client:
        call = asyncio.create_task(client.call("far", 1, locs=["gpu"], x=[2]))
        request = await raw.receive_of("internal-rpc")
        assert (request["command"], request["args"], request["kwargs"]) == ("far", [1], {"x": [2]})
        assert 0 < request["timeout_ms"] <= 30_000
        raw.send({"role": "internal-answer", "u": request["u"], "r": {"done": True}})
        assert await call == {"done": True}
    await raw.close()
    await until(lambda: known_to(node) == set())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cluster_id": "other"}, "CLUSTER_OTHER_CLUSTER"),
        ({"node_id": "a"}, "CLUSTER_NAME_TAKEN"),
        ({"version": "3.0"}, "PROTOCOL_UNSUPPORTED_VERSION"),
        ({"nonce": "short"}, "PROTOCOL_INVALID_MESSAGE"),
        ({"node_id": ""}, "PROTOCOL_INVALID_MESSAGE"),
        ({"proof": "0" * 64}, "CLUSTER_HANDSHAKE"),
    ],
)
async def test_a_hello_that_does_not_fit_is_refused_with_the_reason(
    node: Node, change: dict[str, Any], code: str
) -> None:
    async with RawNode("raw", secret=SECRET) as raw:
        await raw.dial(url(node))
        raw.send(raw.introduction(**change))
        answer = await raw.receive()
        assert answer["role"] == "error-response"
        assert answer["error"]["code"] == code
    assert links_of(node) == set()


async def test_a_wrong_secret_is_refused_counted_and_the_link_closed(node: Node) -> None:
    async with RawNode("raw", secret=b"x" * 32) as raw:
        answer = await raw.handshake(url(node))
        assert answer["error"]["code"] == "CLUSTER_WRONG_SECRET"
        assert await raw.receive() is None
    assert counts(node)["refused_cluster_wrong_secret"] == 1
    assert links_of(node) == set()


async def test_two_nodes_with_one_name_are_told_so_and_the_first_stays(node: Node) -> None:
    first = await joined(node)
    async with RawNode("raw", secret=SECRET) as second:
        answer = await second.handshake(url(node))
        assert answer["error"]["code"] == "CLUSTER_NAME_TAKEN"
    assert links_of(node) == {"raw"}
    await first.close()


async def test_before_the_proof_nothing_but_hello_is_taken(node: Node) -> None:
    async with RawNode("raw", secret=SECRET) as raw:
        await raw.dial(url(node))
        raw.send(raw.introduction())
        assert (await raw.receive())["what"] == "HELLO"
        raw.send({"role": "internal-rpc", "u": "1", "command": "add", "args": [1, 2]})
        answer = await raw.receive()
        assert answer["error"]["code"] == "CLUSTER_HANDSHAKE"
        assert await raw.receive() is None


async def test_a_node_without_a_name_or_nonce_is_a_client_that_lies(node: Node) -> None:
    """The HELLO that the note prints proves nothing."""
    async with RawNode("raw") as raw:
        await raw.dial(url(node))
        raw.send({"what": "HELLO", "funs": ["f"], "locs": ["l"], "cluster_id": "test", "advertised_urls": ["ws://x:1"]})
        assert (await raw.receive())["error"]["code"] == "CLUSTER_HANDSHAKE"
    assert links_of(node) == set()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "internal-rpc", "u": "1", "command": "add", "args": [1, 2]},
        {"role": "internal-publish", "seqs": [1], "messages": [{"topic": "t", "payload": 1, "message_id": "m"}]},
        {"role": "internal-interest", "add": ["#"]},
        {"role": "internal-backlog", "u": "1", "patterns": ["#"], "seconds": 60},
        {"what": "GOODBYE", "node_id": "a"},
    ],
    ids=lambda message: next(iter(message.values())),
)
async def test_a_client_may_not_say_what_nodes_say(node: Node, message: dict[str, Any]) -> None:
    async with RawNode("client") as raw:
        await raw.dial(url(node))
        raw.send(message)
        assert (await raw.receive())["error"]["code"] == "PROTOCOL_UNEXPECTED_MESSAGE"
    assert links_of(node) == set()


# GOODBYE.


async def test_goodbye_is_taken_only_from_the_node_that_leaves(node: Node) -> None:
    raw = await joined(node, funs=["far"])
    links = node._started().services.in_cluster().cluster.links
    raw.send({"what": "GOODBYE", "node_id": "someone-else"})
    await until(lambda: counts(node)["forged_goodbyes"] == 1)
    assert not links.nodes["raw"].leaving
    raw.send({"what": "GOODBYE", "node_id": "raw"})
    await until(lambda: links.nodes["raw"].leaving)
    await raw.close()


async def test_a_node_that_stops_says_goodbye_to_other_nodes(node: Node) -> None:
    raw = await joined(node)
    stopping = asyncio.create_task(node.stop(0))
    assert (await raw.receive_of("GOODBYE"))["node_id"] == "a"
    await stopping
    await raw.close()


# Internal RPC.


async def test_internal_rpc_is_answered_by_internal_answer(node: Node) -> None:
    raw = await joined(node)
    raw.send(
        {"role": "internal-rpc", "u": "internal-67890", "command": "add", "args": [1, 2], "kwargs": {}, "results": {}}
    )
    answer = await raw.receive_of("internal-answer")
    assert (answer["u"], answer["r"], answer["error"]) == ("internal-67890", 3, None)
    await raw.close()


async def test_arguments_may_refer_to_the_results_so_far(node: Node) -> None:
    raw = await joined(node)
    request = {"role": "internal-rpc", "u": "1", "name": "own", "command": "echos"}
    request |= {"args": ["first.a.1", "own", "nobody", {"$literal": "first"}], "results": {"first": {"a": [1, 2]}}}
    raw.send(request)
    assert (await raw.receive_of("internal-answer"))["r"] == [2, "own", "nobody", "first"]
    await raw.close()


async def test_a_command_takes_one_hop_only(node: Node) -> None:
    """What this node does not have itself it does not pass on for another node."""
    raw, other = await joined(node), await joined(node, "other", funs=["far"])
    raw.send({"role": "internal-rpc", "u": "1", "command": "far"})
    answer = await raw.receive_of("internal-answer")
    assert (answer["error"]["code"], answer["started"]) == ("RPC_FUNCTION_NOT_FOUND", False)
    await raw.close()
    await other.close()


async def test_the_error_of_a_function_is_told_as_started(node: Node) -> None:
    raw = await joined(node)
    raw.send({"role": "internal-rpc", "u": "1", "command": "raises"})
    answer = await raw.receive_of("internal-answer")
    assert (answer["error"]["type"], answer["error"]["message"]) == ("ValueError", "no")
    assert answer.get("started") is not False
    await raw.close()


async def test_a_node_that_refuses_is_passed_over_and_the_next_one_asked(node: Node) -> None:
    one, other = await joined(node, "one", funs=["far"]), await joined(node, "two", funs=["far"])

    async def refuse(raw: RawNode) -> None:
        request = await raw.receive_of("internal-rpc")
        if request is not None:
            error = {"type": "ResourceError", "code": "RESOURCE_EXHAUSTED", "message": "full", "state_changed": False}
            raw.send({"role": "internal-answer", "u": request["u"], "r": None, "error": error, "started": False})

    refusing = [asyncio.create_task(refuse(raw)) for raw in (one, other)]
    async with connect(url(node)) as client:
        with pytest.raises(Exception, match="RESOURCE_EXHAUSTED"):
            await client.call("far")
    await asyncio.gather(*refusing)  # both were asked, each once
    await one.close()
    await other.close()


async def test_an_answer_to_nothing_changes_nothing(node: Node) -> None:
    raw = await joined(node, funs=["far"])
    raw.send({"role": "internal-answer", "u": "77", "r": 1})
    async with connect(url(node)) as client:
        call = asyncio.create_task(client.call("far"))
        request = await raw.receive_of("internal-rpc")
        for u, result in (("none", 0), (request["u"], 1), (request["u"], 2)):
            raw.send({"role": "internal-answer", "u": u, "r": result})
        assert await call == 1
        call = asyncio.create_task(client.call("far"))
        request = await raw.receive_of("internal-rpc")
        raw.send({"role": "internal-answer", "u": request["u"], "r": 3})
        assert await call == 3
    await raw.close()


# Topics.


async def test_interest_is_told_and_what_matches_crosses_once(node: Node) -> None:
    raw = await joined(node)
    first = await raw.receive_of("internal-interest")
    assert first["reset"] is True
    raw.send({"role": "internal-interest", "add": ["t.*", "t.#"], "reset": True})
    async with connect(url(node)) as client, client.subscribe("back.*") as messages:
        assert (await raw.receive_of("internal-interest"))["add"] == ["back.*"]
        await until(lambda: bool(node._started().services.pubsub._across.elsewhere))
        await client.publish("t.x", {"a": 1})
        crossed = await raw.receive_of("internal-publish")
        assert [(each["topic"], each["payload"]) for each in crossed["messages"]] == [("t.x", {"a": 1})]
        raw.send(
            {
                "role": "internal-publish",
                "seqs": [1],
                "messages": [{"topic": "back.y", "payload": [1], "message_id": "m-1", "timestamp": 1.0}],
            }
        )
        assert (await anext(messages)).payload == [1]
    await raw.close()


async def test_a_backlog_is_answered_with_positions(node: Node) -> None:
    raw = await joined(node)
    node.publish("past.x", 1)
    raw.send({"role": "internal-backlog", "u": "b1", "patterns": ["past.#"], "seconds": 60})
    answer = await raw.receive_of("internal-backlog-answer")
    assert (answer["u"], answer["seq"], answer["seqs"], answer["more"]) == ("b1", 1, [1], False)
    assert [each["payload"] for each in answer["messages"]] == [1]
    await raw.close()


# Bad input.


@pytest.mark.parametrize("size", [5_000_001, 2**32 - 1])
async def test_a_frame_over_5_mb_ends_the_link_and_costs_no_memory(node: Node, size: int) -> None:
    raw = await joined(node)
    raw.send_bytes(size.to_bytes(4, "big"))
    assert (await raw.receive_of("error-response"))["error"]["code"] == "RESOURCE_FRAME_TOO_LARGE"
    await until(lambda: links_of(node) == set())
    await raw.close()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "gossip", "u": "1"},
        {"role": "nonsense", "u": "1"},
        {"role": "internal-rpc", "u": "1", "command": 7},
        {"role": "internal-publish", "seqs": [1, 2], "messages": []},
        {"role": "internal-interest", "add": ["a..b"]},
        {"role": "pubsub-publish", "u": "1", "message": {"topic": "t", "payload": 1}},
        {"role": "rpc", "u": "1", "cmds": [{"name": "n", "fun": "add", "args": [1, 2]}]},
    ],
    ids=lambda message: message["role"],
)
async def test_what_a_node_may_not_say_is_an_error_and_the_link_stays(node: Node, message: dict[str, Any]) -> None:
    raw = await joined(node)
    raw.send(message)
    assert (await raw.receive_of("error-response"))["error"]["code"].startswith(("PROTOCOL_", "PUBSUB_"))
    raw.send({"role": "internal-rpc", "u": "2", "command": "add", "args": [1, 2]})
    assert (await raw.receive_of("internal-answer"))["r"] == 3
    await raw.close()


async def test_a_node_that_answers_probes_but_nothing_else_holds_up_nobody(node: Node) -> None:
    raw = await joined(node, funs=["far"])
    rpc = node._started().services.rpc
    async with connect(url(node)) as client:
        for _ in range(3):
            with pytest.raises(MpregError) as raised:
                await client.call("far", timeout=0.05)
            assert raised.value.code == "TIMEOUT_EXCEEDED"
        await until(lambda: len(rpc) == 0 and rpc._open == {} and rpc._relays == 0)
        assert await client.call("add", 1, 2) == 3
        assert len(node._started().services.in_cluster().calls) == 0
    await raw.close()

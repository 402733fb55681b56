"""The client with real nodes: every transport, requests of several commands, nodes that stop and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.certificates import Certificates, make_certificates

from mpreg.client import connect
from mpreg.client.commands import command
from mpreg.errors import MpregError, RpcError, TransportError
from mpreg.node import Node, Settings
from mpreg.transport import TlsFiles
from mpreg.wire.encoding import Encoding

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class User(msgspec.Struct):
    id: int
    tags: list[str]


def make_node(name: str = "one", **settings: object) -> Node:
    chosen = {"ws": "off", "tcp": 0, "store": "off", "grace_s": 5.0, **settings}
    node = Node(name, msgspec.convert(chosen, Settings))
    node.gate = asyncio.Event()  # type: ignore[attr-defined]  # of this test

    @node.function
    async def add(a: int, b: int) -> int:
        return a + b

    @node.function
    async def user(id: int) -> User:
        return User(id, ["a", "b"])

    @node.function
    async def where() -> str:
        return name

    @node.function
    async def wait() -> str:
        await node.gate.wait()  # type: ignore[attr-defined]
        return name

    @node.function(locs=["gpu"])
    async def render(scene: str, *, frames: int = 1) -> str:
        return f"{scene} x {frames}"

    return node


@pytest.fixture
async def node(certificates: Certificates) -> AsyncIterator[Node]:
    tls = {"tls_cert": certificates.cert, "tls_key": certificates.key}
    async with make_node(ws=0, wss=0, tcps=0, **tls) as node:
        yield node


@pytest.mark.parametrize("scheme", ["ws", "wss", "tcp", "tcps", "in process"])
@pytest.mark.parametrize("encoding", Encoding)
async def test_calls_by_every_way(node: Node, certificates: Certificates, scheme: str, encoding: Encoding) -> None:
    tls = TlsFiles(ca=certificates.ca) if scheme in ("wss", "tcps") else None
    target = node if scheme == "in process" else node.listeners[scheme]
    async with connect(target, tls=tls, encoding=encoding) as client:
        assert await client.call("add", 1, 2) == 3
        assert await client.call("add", b=1, a=2, result_type=int) == 3
        assert await client.call("user", 7, result_type=User) == User(7, ["a", "b"])
        assert await client.call("render", "sky", frames=3, locs=["gpu"]) == "sky x 3"
        assert await asyncio.gather(*(client.call("echo", i) for i in range(100))) == list(range(100))
        with pytest.raises(RpcError, match="RPC_INVALID_ARGUMENT"):
            await client.call("add", 1, "two")
        with pytest.raises(RpcError, match="RPC_RESOURCE_NOT_FOUND"):
            await client.call("render", "sky", locs=["mars"])


async def test_a_certificate_that_nobody_trusts_is_refused(node: Node) -> None:
    with pytest.raises(TransportError) as caught:
        await connect(node.listeners["wss"])
    assert caught.value.code == "TRANSPORT_TLS"


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
async def test_large_arguments_and_results_are_streamed(node: Node, scheme: str) -> None:
    async with connect(node.listeners[scheme]) as client:
        text = "x" * 90_000_000
        assert await client.call("echo", text) == text


async def test_a_request_of_commands_that_use_each_other(node: Node) -> None:
    async with connect(node) as client:
        total = command("add", 1, 2, result_type=int)
        assert await client.request(total) == 3
        twice = command("add", total, total)
        assert await client.request(twice) == 6
        assert await client.request([total, twice]) == [3, 6]
        who = command("user", total, result_type=User)
        assert await client.request([who, command("echo", who["tags"][1])]) == [User(3, ["a", "b"]), "b"]
        assert await client.request([]) == []
        assert await client.request(command("render", "sky", locs=["gpu"])) == "sky x 1"


async def test_a_request_that_fails_names_the_command(node: Node) -> None:
    async with connect(node) as client:
        bad = command("add", 1, "two", name="bad")
        with pytest.raises(RpcError) as caught:
            await client.request(command("echo", bad))
        assert caught.value.code == "RPC_INVALID_ARGUMENT"
        assert caught.value.details["command"] == "bad"


async def test_the_headers_reach_the_node(node: Node) -> None:
    """And a node without a policy takes any token."""
    async with connect(node.listeners["ws"], token="secret", headers={"X-Trace": "1"}) as client:
        assert await client.call("where") == "one"


async def test_of_several_addresses_the_first_that_answers_is_used(node: Node) -> None:
    async with make_node("gone") as gone:
        url = gone.listeners["tcp"]
    async with connect([url, node.listeners["tcp"]]) as client:
        assert await client.call("where") == "one"


async def test_when_a_node_stops_calls_go_to_the_next_and_what_ran_finishes() -> None:
    one, two = make_node("one"), make_node("two")
    async with two:
        await one.start()
        async with connect([one.listeners["tcp"], two.listeners["tcp"]]) as client:
            assert await client.call("where") == "one"
            running = asyncio.create_task(client.call("wait"))
            while not client.calls_open:
                await asyncio.sleep(0)
            await client.call("where")  # behind `wait` on the same connection, so that one has begun
            stopping = asyncio.create_task(one.stop())
            while (answer := await client.call("where")) == "one":
                pass
            assert answer == "two"
            one.gate.set()  # type: ignore[attr-defined]
            assert await running == "one"
            await stopping
            assert await client.call("where") == "two"


async def test_a_node_that_comes_back_is_found_again() -> None:
    node = make_node("one")
    await node.start()
    url = node.listeners["tcp"]
    async with connect(url) as client:
        assert await client.call("where") == "one"
        await node.stop()
        waiting = asyncio.create_task(client.call("where"))
        again = make_node("again", tcp=int(url.rsplit(":", 1)[1]))
        async with again:
            assert await waiting == "again"


async def test_an_address_where_nobody_listens_is_refused_at_once(tmp_path: Path) -> None:
    async with make_node() as gone:
        url = gone.listeners["tcp"]
    with pytest.raises(TransportError) as caught:
        await connect(url)
    assert caught.value.code == "TRANSPORT_CONNECTION_REFUSED"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "tcp://:x"])
async def test_an_address_that_can_not_be_read_is_named(url: str) -> None:
    with pytest.raises(MpregError) as caught:
        await connect(url)
    assert caught.value.code == "TRANSPORT_INVALID_URL"

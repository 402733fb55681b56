"""A node as a unit: its functions answer plain keys, its clients ask units, topics tell of both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.apps.muf.conftest import Units
from tests.apps.muf.peer import err, raw_backend, res, until_set
from tests.node.processes import serving
from tests.store.servers import StoreServers

from mpreg.apps.muf import MufRemoteError
from mpreg.apps.muf.bridge import Bridge, topic_of
from mpreg.apps.muf.names import Name
from mpreg.client import Client, connect
from mpreg.errors import ConfigError, MpregError
from mpreg.node import Node, Settings
from mpreg.store import Store

pytestmark = pytest.mark.anyio

OFF: dict[str, Any] = {"ws": "off", "tcp": "off", "grace_s": 0}


def node_of(url: str, name: str = "node", calls: list[str] | None = None) -> Node:
    node = Node(name, Settings(store=url, **OFF))
    seen = calls if calls is not None else []

    @node.function
    async def add(a: int, b: int = 0) -> int:
        seen.append(node.name)
        return a + b

    @node.function(name="math.add")
    async def add_in_group(a: int, b: int) -> str:
        return f"math {a + b}"

    @node.function
    def fail(text: str) -> None:
        raise LookupError(text)

    return node


@asynccontextmanager
async def bridged(url: str, *, topics: bool = False) -> AsyncIterator[tuple[Node, Client]]:
    node = node_of(url)
    node.beside(Bridge(node, "GATE", topics=topics))
    async with node, connect(node) as client:
        yield node, client


async def ask(store: Store, id: str, value: str = "", unit: str = "FE") -> None:
    await store.command("SET", f"MUF/{unit}/REQ/{id}", value, "EX", 10)


# --- keys call functions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "value", "answer"),
    [
        ("add.1", "[1, 2]", b"3"),
        ("add.2", '{"a": 1, "b": 2}', b"3"),
        ("add.3", "7", b"7"),
        ("math.add.1", "[1, 2]", b'"math 3"'),
        ("echo.名前", '["値"]', '"値"'.encode()),
        ("echos.1", "", b"[]"),
        ("echo.null", "[null]", b"null"),
    ],
)
async def test_a_key_whose_id_begins_with_a_function_calls_it(
    store: Store, store_servers: StoreServers, id: str, value: str, answer: bytes
) -> None:
    async with bridged(store_servers.url):
        await ask(store, id, value)
        assert await until_set(store, f"MUF/FE/RES/{id}") == answer
        assert 29 <= await store.command("TTL", f"MUF/FE/RES/{id}") <= 30


@pytest.mark.parametrize(
    ("id", "value", "code", "said"),
    [
        ("fail.1", '["no such thing"]', "RPC_FUNCTION_FAILED", "no such thing"),
        ("add.1", '["x", 1]', "RPC_INVALID_ARGUMENT", ""),
        ("add.2", "[]", "RPC_INVALID_ARGUMENT", ""),
        ("add.3", "{broken", "RPC_INVALID_ARGUMENT", "not JSON"),
    ],
)
async def test_what_fails_is_err_as_json(
    store: Store, store_servers: StoreServers, id: str, value: str, code: str, said: str
) -> None:
    async with bridged(store_servers.url):
        await ask(store, id, value)
        answer = json.loads(await until_set(store, f"MUF/FE/ERR/{id}"))
        assert answer["code"] == code
        assert said in answer["message"]
        assert set(answer) == {"code", "type", "message"}
        if id == "fail.1":
            assert answer["type"] == "LookupError"


async def test_it_says_nothing_to_what_is_no_call_nor_to_what_nodes_are_run_by(
    store: Store, store_servers: StoreServers
) -> None:
    async with bridged(store_servers.url):
        silent = ["unknown.1", "add", "1", "adder.1", "mpreg.stats.1", "mpreg.leave.1", "muf.request.1"]
        for id in silent:
            await ask(store, id, "[1, 2]")
        await ask(store, "add.last", "[1, 2]")
        await until_set(store, "MUF/FE/RES/add.last")
        for id in silent:
            assert not await store.command("EXISTS", f"MUF/FE/RES/{id}")
            assert not await store.command("EXISTS", f"MUF/FE/ERR/{id}")


async def test_nodes_that_share_a_store_share_the_work(store: Store, store_servers: StoreServers) -> None:
    calls: list[str] = []
    nodes = [node_of(store_servers.url, f"n{n}", calls) for n in range(3)]
    for node in nodes:
        node.beside(Bridge(node, "GATE"))
    async with nodes[0], nodes[1], nodes[2]:
        for n in range(60):
            await ask(store, f"add.{n}", f"[{n}, 1]")
        for n in range(60):
            assert await until_set(store, f"MUF/FE/RES/add.{n}") == b"%d" % (n + 1)
    assert len(calls) == 60


async def test_a_function_that_comes_later_answers_too(store: Store, store_servers: StoreServers) -> None:
    async with bridged(store_servers.url) as (node, _):

        @node.function
        async def late() -> str:
            return "there"

        await ask(store, "late.1")
        assert await until_set(store, "MUF/FE/RES/late.1") == b'"there"'


async def test_a_unit_of_python_calls_a_function(unit: Units, store_servers: StoreServers) -> None:
    frontend = await unit("FE", codec="json")
    async with bridged(store_servers.url):
        assert await frontend.request([20, 22], target="add") == 42
        with pytest.raises(MufRemoteError) as failed:
            await frontend.request(["x"], target="fail")
    assert json.loads(failed.value.payload)["message"] == "x"


# --- clients ask units ------------------------------------------------------------------------------------------------


async def test_a_client_of_the_node_asks_a_unit(store: Store, store_servers: StoreServers) -> None:
    async with (
        bridged(store_servers.url) as (_, client),
        raw_backend(store, lambda key, value: [res(key, b'{"got": ' + value + b"}")]) as seen,
    ):
        assert await client.call("muf.request", [1, None], target="UPPER") == {"got": [1, None]}
        assert seen[0].startswith(b"MUF/GATE/REQ/UPPER.")
        assert await client.call("muf.request", "x", id="mine", ttl=5) == {"got": "x"}
        assert seen[1] == b"MUF/GATE/REQ/mine"


async def test_an_answer_that_is_no_json_is_text(store: Store, store_servers: StoreServers) -> None:
    async with (
        bridged(store_servers.url) as (_, client),
        raw_backend(store, lambda key, value: [res(key, b"plain \xff")]),
    ):
        assert await client.call("muf.request", 1) == "plain \\xff"


async def test_a_client_hears_what_went_wrong_with_a_unit(store: Store, store_servers: StoreServers) -> None:
    async with bridged(store_servers.url) as (_, client):
        async with raw_backend(store, lambda key, value: [err(key, b"broken")]):
            with pytest.raises(MpregError) as failed:
                await client.call("muf.request", 1)
            assert failed.value.code == "MUF_REMOTE"
            assert failed.value.details["payload"] == "broken"
        with pytest.raises(MpregError) as late:
            await client.call("muf.request", 1, None, None, 1, 0.05)
        assert late.value.code == "MUF_TIMEOUT"
        with pytest.raises(MpregError) as bad:
            await client.call("muf.request", 1, target="a b")
        assert bad.value.code == "RPC_INVALID_ARGUMENT"
        assert "target" in bad.value.message


# --- events as topics -------------------------------------------------------------------------------------------------


async def test_what_units_say_is_published(store: Store, store_servers: StoreServers) -> None:
    async with bridged(store_servers.url, topics=True) as (_, client), client.subscribe("muf.*.FE") as messages:
        await ask(store, "add.1", "[1, 2]")
        heard = [await anext(messages), await anext(messages)]
        assert [(message.topic, message.payload) for message in heard] == [
            ("muf.REQ.FE", {"unit": "FE", "status": "REQ", "id": "add.1"}),
            ("muf.RES.FE", {"unit": "FE", "status": "RES", "id": "add.1"}),
        ]


@pytest.mark.parametrize(("unit", "level"), [("FE", "FE"), ("a.b", "a_b"), ("*", "_"), ("#x", "_x"), ("漢字", "漢字")])
def test_a_topic_has_a_level_for_each_unit_whatever_its_name(unit: str, level: str) -> None:
    assert topic_of(Name(unit, "KEEP", "x")) == f"muf.KEEP.{level}"


# --- coming and going -------------------------------------------------------------------------------------------------


async def test_without_a_store_the_node_does_not_start() -> None:
    node = Node("n", Settings(store="off", **OFF))
    node.beside(Bridge(node))
    with pytest.raises(ConfigError) as refused:
        await node.start()
    assert refused.value.details["setting"] == "store"


async def test_a_node_may_start_again(store: Store, store_servers: StoreServers) -> None:
    node = node_of(store_servers.url)
    node.beside(Bridge(node, "GATE", topics=True))
    before = len(asyncio.all_tasks())
    for n in range(2):
        async with node:
            await ask(store, f"add.{n}", "[1, 2]")
            assert await until_set(store, f"MUF/FE/RES/add.{n}") == b"3"
    assert len(asyncio.all_tasks()) == before, "nothing is left running"


APP = """
from mpreg import Node
node = Node("app")

@node.function
async def greet(name: str) -> str:
    return f"Hello, {name}!"
"""


async def test_mpreg_serve_is_a_unit_when_asked_to(tmp_path: Path, store: Store, store_servers: StoreServers) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "mpreg.toml").write_text('muf = true\nmuf_unit = "FROM_FILE"\n')
    base = ("app.py", "--ws", "off", "--tcp", "0", "--store", store_servers.url)
    for options, unit in [(("--muf",), "MPREG"), (("--config", "mpreg.toml"), "FROM_FILE")]:
        async with serving(tmp_path, *base, *options) as served:
            await ask(store, f"greet.{unit}", '["you"]')
            assert await until_set(store, f"MUF/FE/RES/greet.{unit}") == b'"Hello, you!"'
            assert await store.command("EXISTS", f"MUF/{unit}/KEEP/claim.FE.greet.{unit}")
            async with (
                connect(served.url) as client,
                raw_backend(store, lambda key, value: [res(key, b'"' + key + b'"')]),
            ):
                assert (await client.call("muf.request", 1, target="X")).startswith(f"MUF/{unit}/REQ/X.")
            code, _, log = await served.stop()
        assert code == 0
        assert f"the unit {unit} answers" in log


async def test_mpreg_serve_publishes_what_units_say_when_asked_to(
    tmp_path: Path, store: Store, store_servers: StoreServers
) -> None:
    options = ("--ws", "off", "--tcp", "0", "--store", store_servers.url, "--muf-topics", "--muf-unit", "GATE")
    async with (
        serving(tmp_path, *options) as served,
        connect(served.url) as client,
        client.subscribe("muf.#") as messages,
    ):
        await ask(store, "1")
        assert (await anext(messages)).payload == {"unit": "FE", "status": "REQ", "id": "1"}


async def test_a_unit_name_that_cannot_be_is_named_by_mpreg_serve(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="muf_unit"):
        async with serving(tmp_path, "--ws", "off", "--tcp", "0", "--muf", "--muf-unit", "a/b"):
            pass

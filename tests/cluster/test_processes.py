"""Clusters of real processes: workers behind one port, a shared store, the command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.node.processes import mpreg, serving, start

from mpreg.client import connect
from mpreg.errors import MpregError

pytestmark = pytest.mark.anyio

APP = """
import os
from mpreg.node import Node

node = Node("w")

@node.function
def who() -> int:
    return os.getpid()
"""
PLAIN = ("--ws", "off", "--tcp", "0", "--store", "off", "--cluster", "c", "--membership", "local")


def app(directory: Path) -> str:
    (directory / "app.py").write_text(APP)
    return "app.py"


async def until_nodes(url: str, **states: str) -> list[dict[str, Any]]:
    """Nothing tells this process what becomes of others, so it asks."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(MpregError):  # the worker that answers may be the one that dies
                async with connect(url) as client:
                    found: list[dict[str, Any]] = await client.call("mpreg.nodes")
                    if {each["name"]: each["state"] for each in found} == states:
                        return found
            await asyncio.sleep(0.02)


async def test_workers_are_one_cluster_behind_one_port(tmp_path: Path) -> None:
    options = ("--workers", "2", "--ws", "off", "--tcp", "0", "--store", "off", "--membership", "local")
    async with serving(tmp_path, app(tmp_path), *options) as served:
        pids = {worker["pid"] for worker in served.ready["workers"]}
        assert len(pids) == 2
        await until_nodes(served.url, **{"w-1": "alive", "w-2": "alive"})
        seen: Counter[int] = Counter()
        async with asyncio.timeout(30):
            while set(seen) != pids:  # the kernel chooses by a hash of the addresses
                async with connect(served.url) as client:
                    seen[await client.call("who")] += 1
        async with connect(served.url) as client:
            topic = await client.subscribe("t")
            async with connect(served.url) as other:
                for number in range(4):
                    await other.publish("t", number)
            assert [(await anext(topic)).payload for _ in range(4)] == [0, 1, 2, 3]
        code, _, _ = await served.stop()
        assert code == 0
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


async def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    options = ("--workers", "2", "--ws", "off", "--tcp", "0", "--store", "off", "--membership", "local")
    async with serving(tmp_path, app(tmp_path), *options) as served:
        before = {worker["node"]: worker["pid"] for worker in served.ready["workers"]}
        await until_nodes(served.url, **{"w-1": "alive", "w-2": "alive"})
        os.kill(before["w-1"], signal.SIGKILL)
        async with asyncio.timeout(30):
            while True:
                found = await until_nodes(served.url, **{"w-1": "alive", "w-2": "alive"})
                pids = {each["name"]: each["pid"] for each in found}
                if pids["w-1"] != before["w-1"]:
                    break
                await asyncio.sleep(0.02)
        assert pids["w-2"] == before["w-2"]


async def test_workers_that_can_not_start_end_the_supervisor_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from mpreg.node import Node\nnode = Node('b')\nimport os\n"
        "if 'MPREG_WORKER_OF' in os.environ: raise SystemExit(3)\n"
    )
    code, _, err = await mpreg(
        tmp_path, "serve", "broken.py", "--workers", "2", "--ws", "off", "--tcp", "0", "--store", "off"
    )
    assert code == 1
    assert "before it was ready" in err


async def test_workers_die_with_their_supervisor(tmp_path: Path) -> None:
    options = ("--workers", "2", "--ws", "off", "--tcp", "0", "--store", "off")
    async with serving(tmp_path, app(tmp_path), *options) as served:
        pids = [worker["pid"] for worker in served.ready["workers"]]
        served.process.kill()
        await served.process.wait()
        async with asyncio.timeout(30):
            while any(_state(pid) != "Z" for pid in pids):
                await asyncio.sleep(0.02)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


async def test_nodes_of_a_cluster_share_a_store(tmp_path: Path) -> None:
    one, other = tmp_path / "1", tmp_path / "2"
    one.mkdir()
    other.mkdir()
    alone = ("--ws", "off", "--tcp", "0", "--cluster", "c")
    code, _, err = await mpreg(other, "serve", *alone)
    assert code == 1
    assert "share" in err
    async with serving(one, *alone, "--share-store", "--name", "a") as a:
        join = ("--join", a.url, "--store", "shared:", "--name", "b")
        async with serving(other, *alone, *join) as b:
            assert b.ready["store"] == a.ready["store"]
            await until_nodes(b.url, a="alive", b="alive")


async def test_the_commands_of_a_cluster(tmp_path: Path) -> None:
    one, other = tmp_path / "1", tmp_path / "2"
    one.mkdir()
    other.mkdir()
    async with (
        serving(one, app(one), *PLAIN, "--name", "a") as a,
        serving(other, *PLAIN, "--name", "b", "--join", a.url) as b,
    ):
        url = ("--url", a.url)
        await until_nodes(a.url, a="alive", b="alive")
        code, out, _ = await mpreg(tmp_path, "cluster", "nodes", *url)
        assert code == 0
        assert "linked" in out
        code, out, _ = await mpreg(tmp_path, "cluster", "nodes", "--json", *url)
        assert {each["name"]: each["state"] for each in json.loads(out)} == {"a": "alive", "b": "alive"}
        code, out, _ = await mpreg(tmp_path, "cluster", "functions", "who", "--json", "--url", b.url)
        assert [(each["name"], each["providers"]) for each in json.loads(out)] == [("who", ["a"])]
        async with connect(b.url) as client, client.subscribe("x.*"):
            code, out, _ = await mpreg(tmp_path, "cluster", "topics", "--json", *url)
            assert json.loads(out)["b"] == ["x.*"]
            code, out, _ = await mpreg(tmp_path, "cluster", "topics", *url)
            assert "x.*" in out
        code, out, _ = await mpreg(tmp_path, "cluster", "state", "--json", *url)
        assert code == 0
        assert isinstance(json.loads(out), list)
        watching = await start(tmp_path, "cluster", "watch", "--count", "1", "--json", *url)
        assert watching.stdout is not None
        first = json.loads(await asyncio.wait_for(watching.stdout.readline(), 30))
        assert (first["node"], first["state"]) == ("b", "alive")
        code, out, _ = await mpreg(tmp_path, "cluster", "leave", "--yes", "--url", b.url)
        assert (code, out) == (0, "b has left\n")
        change = json.loads(await asyncio.wait_for(watching.stdout.readline(), 30))
        assert (change["node"], change["state"], change["seen_by"]) == ("b", "left", "a")
        assert await asyncio.wait_for(watching.wait(), 30) == 0
        code, _, err = await mpreg(tmp_path, "cluster", "state", "--json", "--url", b.url)
        assert code in (0, 1), err


async def test_a_node_without_a_cluster_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, "--ws", "off", "--tcp", "0", "--store", "off") as served:
        code, _, err = await mpreg(tmp_path, "cluster", "state", "--url", served.url)
        assert code == 1
        assert "CLUSTER_NOT_CLUSTERED" in err


async def test_workers_that_advertise_are_each_reached_and_clients_learn_no_port_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef")
    options = ("--workers", "2", "--ws", "off", "--tcp", "0", "--store", "off", "--membership", "local")
    options += ("--cluster", "c", "--cluster-secret-file", str(tmp_path / "secret"))
    async with serving(tmp_path, app(tmp_path), *options, "--advertise", "tcp://127.0.0.1:9") as served:
        found = await until_nodes(served.url, **{"w-1": "alive", "w-2": "alive"})
        first = {each["advertised_urls"][0] for each in found}
        assert len(first) == 2
        assert all(each["linked"] for each in found if not each.get("self"))
        assert {url for each in found for url in each["client_urls"]} == {"tcp://127.0.0.1:9"}

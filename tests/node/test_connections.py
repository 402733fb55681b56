"""How many may be connected, and what the next one is told."""

from __future__ import annotations

import asyncio
import json
import resource
import struct

import pytest

from mpreg.client import connect
from mpreg.node import Node, Settings
from mpreg.node.open_files import allow_open_files, needed_for

pytestmark = pytest.mark.anyio


async def test_who_comes_when_the_node_is_full_is_told_so_and_the_others_notice_nothing() -> None:
    node = Node("n", Settings(ws=0, tcp=0, store="off", connections_max=1))
    async with node, connect(node.listeners["ws"]) as client:
        port = int(node.listeners["tcp"].rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        (length,) = struct.unpack(">I", await reader.readexactly(4))
        reply = json.loads(await reader.readexactly(length))
        assert await reader.read() == b""
        writer.close()
        assert reply["role"] == "error-response"
        error = reply["error"]
        assert (error["code"], error["retryable"]) == ("RESOURCE_EXHAUSTED", True)
        assert error["details"] == {"limit": "connections_max", "connections_max": 1}
        assert await client.call("echo", 1) == 1
        assert (await client.call("mpreg.stats"))["rpc"]["refused_connections"] == 1


def limits(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    """What is set from now on."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: found.append(both))
    return found


def test_a_node_asks_for_as_many_files_as_its_connections_need(monkeypatch: pytest.MonkeyPatch) -> None:
    assert needed_for(10_000) > 10_000
    asked = limits(monkeypatch, 1_024, 1_048_576)
    assert allow_open_files(10_000) == needed_for(10_000)
    assert asked == [(needed_for(10_000), 1_048_576)]


def test_it_asks_for_nothing_if_that_many_are_allowed_already(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = limits(monkeypatch, 50_000, 50_000)
    assert allow_open_files(10_000) == needed_for(10_000)
    assert asked == []


def test_where_the_system_allows_less_it_takes_that_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = limits(monkeypatch, 256, 4_096)
    assert allow_open_files(10_000) == 4_096
    assert asked == [(4_096, 4_096)]
    assert "4096 open files are allowed" in caplog.text

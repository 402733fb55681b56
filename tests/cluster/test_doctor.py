"""`mpreg doctor` says why a node would not get in, before it is started."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.nodes import cluster, links_of, settings
from tests.node.processes import mpreg

from mpreg.node import Node

pytestmark = pytest.mark.anyio

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    (tmp_path / "secret").write_text(SECRET)
    async with cluster(Node("a", settings(cluster_secret_file=str(tmp_path / "secret")))) as nodes:
        yield nodes.by_name["a"]


async def findings(directory: Path, **environment: str) -> dict[str, dict[str, Any]]:
    """What the doctor says of a node called b that is to join, by what it says it of."""
    settled = {"NAME": "b", "CLUSTER": "test", "STORE": "off", "WS": "0", "TCP": "0"}
    settled |= {"CLUSTER_SECRET_FILE": str(directory / "secret"), **environment}
    _, out, err = await mpreg(
        directory, "doctor", "--json", env={f"MPREG_{name}": value for name, value in settled.items()}
    )
    assert out, err
    return {each["what"]: each for each in json.loads(out)}


async def test_a_node_that_fits_is_told_so_and_does_not_join(node: Node, tmp_path: Path) -> None:
    url = node.listeners["tcp"]
    found = (await findings(tmp_path, JOIN=url))[url]
    assert found["state"] == "ok"
    assert "lets this node in" in found["says"]
    assert links_of(node) == set()
    assert node._started().services.in_cluster().cluster.machine.members() == {}


@pytest.mark.parametrize(
    ("change", "says", "do"),
    [
        ({"CLUSTER_SECRET_FILE": "wrong"}, "cluster secret", "--cluster-secret-file"),
        ({"CLUSTER": "other"}, "of the cluster", "--cluster"),
        ({"NAME": "a"}, "named 'a'", "--name"),
    ],
)
async def test_why_a_node_does_not_get_in(
    node: Node, tmp_path: Path, change: dict[str, str], says: str, do: str
) -> None:
    (tmp_path / "wrong").write_text("x" * 32)
    url = node.listeners["tcp"]
    found = await findings(tmp_path, JOIN=url, **change)
    assert found[url]["state"] == "problem"
    assert says in found[url]["says"]
    assert do in found[url]["do"]
    assert found["join"]["state"] == "problem"


async def test_a_seed_that_is_not_there_and_settings_that_do_not_fit(node: Node, tmp_path: Path) -> None:
    away = "tcp://127.0.0.1:9"
    found = await findings(tmp_path, JOIN=away)
    assert found[away]["state"] == "problem"
    assert "--join" in found[away]["do"]
    found = await findings(tmp_path, JOIN=f"{away} {node.listeners['tcp']}")
    assert found[away]["state"] == "warning"
    assert "join" not in found
    (tmp_path / "short").write_text("short")
    found = await findings(tmp_path, CLUSTER_SECRET_FILE=str(tmp_path / "short"))
    assert "16" in found["cluster"]["says"]
    found = await findings(tmp_path, STORE="embedded:")
    assert "share" in found["cluster"]["says"]
    found = await findings(tmp_path, ADVERTISE="tcp://no-such-host.invalid:1 tcp://192.0.2.1:1")
    assert found["advertise tcp://no-such-host.invalid:1"]["state"] == "problem"
    assert found["advertise tcp://192.0.2.1:1"]["state"] == "warning"

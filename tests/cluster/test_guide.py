"""The guide's first cluster is run as it stands, but for the ports."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.node.processes import ENVIRONMENT, serving

pytestmark = pytest.mark.anyio

GUIDE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
PORTS = {"--ws": "off", "--tcp": "0"}


def program(name: str) -> str:
    found = re.search(rf"`{re.escape(name)}`:\n\n```python\n(.*?)```", GUIDE, re.DOTALL)
    assert found is not None
    return found[1]


def options(app: str) -> list[str]:
    found = re.search(rf"^\$ mpreg serve {re.escape(app)} (.*--cluster.*)$", GUIDE, re.MULTILINE)
    assert found is not None
    words = shlex.split(found[1])
    for option, value in PORTS.items():
        words[words.index(option) + 1] = value
    return words


async def test_the_first_two_nodes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, name in ((one, "stock.py"), (other, "prices.py")):
        folder.mkdir()
        (folder / name).write_text(program(name))
    async with serving(one, "stock.py", *options("stock.py")) as stock:
        join = [word.replace("tcp://127.0.0.1:7001", stock.url) for word in options("prices.py")]
        async with serving(other, "prices.py", *join) as prices:
            (tmp_path / "buy.py").write_text(program("buy.py").replace("tcp://127.0.0.1:7002", prices.url))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "buy.py", cwd=tmp_path, env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE
            )
            out, _ = await asyncio.wait_for(process.communicate(), 60)
            expected = re.search(r"subscriber at `prices`:\n\n```\n(.*?)```", GUIDE, re.DOTALL)
            assert expected is not None
            assert out.decode() == expected[1]


def test_every_option_of_the_guide_is_one_of_serve() -> None:
    from mpreg.cli.serve import serve

    known = {name for parameter in serve.params for name in parameter.opts}
    for option in re.findall(r"^\| `(--[a-z-]+)`", GUIDE, re.MULTILINE):
        assert option in known


def test_every_error_that_the_guide_names_has_a_meaning() -> None:
    from mpreg.errors import CODES

    for code in re.findall(r"`((?:CLUSTER|TRANSPORT|RESOURCE|PROTOCOL)_[A-Z_]+)`", GUIDE):
        assert code in CODES, code

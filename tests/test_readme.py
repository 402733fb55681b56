"""The README's first program, run as it stands but for the port."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from tests.node.processes import ENVIRONMENT, mpreg, serving

pytestmark = pytest.mark.anyio

README = (Path(__file__).parents[1] / "README.md").read_text()
FREE = ("--ws", "0", "--tcp", "0")


def program(name: str) -> str:
    found = re.search(rf"`{re.escape(name)}`[^\n]*:\n\n```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


async def test_the_first_program_runs_as_printed(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(program("hello.py"))
    async with serving(tmp_path, "hello.py", *FREE) as served:
        client = program("client.py")
        assert "tcp://127.0.0.1:6668" in client
        (tmp_path / "client.py").write_text(client.replace("tcp://127.0.0.1:6668", served.url))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "client.py", cwd=tmp_path, env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert out.decode() == "Hello, world!\n"
        assert (await mpreg(tmp_path, "call", "greet", "world", "--url", served.url))[:2] == (0, "Hello, world!\n")


def test_every_page_that_the_readme_names_is_there() -> None:
    for page in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parents[1] / page).exists(), page

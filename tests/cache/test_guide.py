"""The guide of the cache, run as it stands: its node, its programs, its commands, what they say (`…` is anything)."""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from pathlib import Path

import pytest
from tests.node.processes import ENVIRONMENT, serving
from tests.store.servers import valkey

from mpreg.cache import CacheSettings
from mpreg.errors import CODES

pytestmark = pytest.mark.anyio

GUIDE = (Path(__file__).parents[2] / "docs" / "cache.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
ADDRESS = "tcp://127.0.0.1:6668"


async def said(directory: Path, url: str, *command: str) -> str:
    """What it prints, on stderr too; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env={**ENVIRONMENT, "MPREG_URL": url},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode()
    return out.decode()


def matches(printed: str, output: str) -> bool:
    return re.fullmatch(re.escape(printed).replace("…", ".*"), output) is not None


async def test_its_programs_and_commands_say_what_is_printed(tmp_path: Path) -> None:
    blocks = BLOCK.findall(GUIDE)
    (tmp_path / "shop.py").write_text(next(text for language, text in blocks if language == "python"))
    with valkey() as server:
        async with serving(tmp_path, "shop.py", "--ws", "off", "--tcp", "0", "--store", server.url) as node:
            programs = 0
            for (language, text), (next_language, output) in itertools.pairwise(blocks):
                if language == "python" and next_language == "text":
                    assert ADDRESS in text
                    (tmp_path / "program.py").write_text(text.replace(ADDRESS, node.url))
                    found = await said(tmp_path, node.url, sys.executable, "program.py")
                    assert matches(output, found), f"{text}\n{found}"
                    programs += 1
            assert programs == 4
            console = next(text for language, text in blocks if language == "console")
            for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                line = command.replace("mpreg ", f"{sys.executable} -m mpreg ", 1)
                found = await said(tmp_path, node.url, "/bin/sh", "-c", line)
                assert matches(output, found), f"{command}\n{found}"
            _, out, _ = await node.stop()
    assert out.splitlines().count("asked for tea") == 1


def test_its_limits_are_those_of_the_settings() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", GUIDE, re.MULTILINE))
    settings = CacheSettings()
    assert {name: float(default) for name, default in rows.items()} == {
        name: float(getattr(settings, name)) for name in settings.__struct_fields__ if name != "memory"
    }


def test_it_names_every_code() -> None:
    for name in (code for code in CODES if code.startswith("CACHE_")):
        assert f"`{name}`" in GUIDE, name

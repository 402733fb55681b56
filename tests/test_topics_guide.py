"""The guide of topics, run as it stands: its node, its programs, its commands, and what they say (`…` is anything)."""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from pathlib import Path

import pytest
from tests.node.processes import ENVIRONMENT, serving

from mpreg.errors import CODES
from mpreg.pubsub import PubSubLimits
from mpreg.pubsub.statistics import PubSubStatistics

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
GUIDE = (ROOT / "docs" / "topics.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
ADDRESS = "tcp://127.0.0.1:6668"
FREE = ("--ws", "off", "--tcp", "0", "--store", "off")


async def said(directory: Path, url: str, *command: str, stderr: int | None = None) -> str:
    """What it prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env={**ENVIRONMENT, "MPREG_URL": url},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
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
    """Line by line; how many blanks are in a table depends on what is in it."""
    wanted, found = ([" ".join(line.split()) for line in text.splitlines()] for text in (printed, output))
    return len(wanted) == len(found) and all(
        re.fullmatch(re.escape(line).replace("…", ".*"), other) for line, other in zip(wanted, found, strict=True)
    )


async def test_its_programs_and_commands_say_what_is_printed(tmp_path: Path) -> None:
    blocks = BLOCK.findall(GUIDE)
    shop = next(text for language, text in blocks if language == "python")
    (tmp_path / "shop.py").write_text(shop)
    async with serving(tmp_path, "shop.py", *FREE) as node:
        programs = 0
        for (language, text), (next_language, output) in itertools.pairwise(blocks):
            if language == "python" and next_language == "text":
                assert ADDRESS in text
                (tmp_path / "program.py").write_text(text.replace(ADDRESS, node.url))
                found = await said(tmp_path, node.url, sys.executable, "program.py")
                assert matches(output, found), f"{text}\n{found}"
                programs += 1
        assert programs == 5
        console = next(text for language, text in blocks if language == "console")
        for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            line = command.replace("mpreg ", f"{sys.executable} -m mpreg ", 1)
            found = await said(tmp_path, node.url, "/bin/sh", "-c", line, stderr=asyncio.subprocess.STDOUT)
            assert matches(output, found), f"{command}\n{found}"
        _, out, _ = await node.stop()
    assert "orders.eu.new {'id': 1, 'items': ['tea', 'cup']}" in out.splitlines()


def test_its_limits_are_those_of_the_settings() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", GUIDE, re.MULTILINE))
    limits = PubSubLimits()
    assert {name: float(default) for name, default in rows.items()} == {
        name: float(getattr(limits, name)) for name in limits.__struct_fields__
    }


def test_it_names_every_code_and_every_count() -> None:
    for name in [code for code in CODES if code.startswith("PUBSUB_")] + list(PubSubStatistics().report()):
        assert f"`{name}`" in GUIDE, name


async def test_the_examples_run_as_they_stand(tmp_path: Path) -> None:
    assert await said(tmp_path, "", sys.executable, str(EXAMPLES / "topics.py")) == (
        "alarms.attic 31.5 degrees {'urgent': True}\n"
        "sensors.heat.kitchen 21.0\n"
        "sensors.heat.attic 31.5\n"
        "['kitchen', 'attic']\n"
    )
    async with serving(tmp_path, *FREE) as node:
        script = str(EXAMPLES / "topics_script.py")
        found = await said(tmp_path, node.url, sys.executable, script, node.url, "a.b", "one", "two")
        assert found == "a.b: one\na.b: two\n"

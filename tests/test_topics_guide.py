"""The guide of topics, run as it stands: its node, its programs, its commands, and what they say (`…` is anything)."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.guides import ROOT, Guide, matches
from tests.node.processes import ENVIRONMENT, serving

from mpreg.errors import CODES
from mpreg.pubsub import PubSubLimits
from mpreg.pubsub.statistics import PubSubStatistics

pytestmark = pytest.mark.anyio

PAGE = "docs/topics.md"
TEXT = (ROOT / PAGE).read_text()
EXAMPLES = ROOT / "examples"
ADDRESS = "tcp://127.0.0.1:6668"
FREE = ("--ws", "off", "--tcp", "0", "--store", "off")


async def said(directory: Path, url: str, *command: str, stderr: int | None = None) -> str:
    """What it prints; it must succeed."""
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=directory,
        env={**ENVIRONMENT, "MPREG_URL": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


def without_columns(text: str) -> str:
    """How many blanks are in a table depends on what is in it."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


async def test_its_programs_and_commands_say_what_is_printed(tmp_path: Path) -> None:
    guide = Guide(PAGE)
    shop, *programs = guide.programs()
    assert (shop.name, len(programs)) == ("shop.py", 5)
    (tmp_path / shop.name).write_text(shop.text)
    async with serving(tmp_path, shop.name, *FREE) as node:
        for program in programs:
            assert program.output is not None
            assert ADDRESS in program.text
            (tmp_path / program.name).write_text(program.text.replace(ADDRESS, node.url))
            found = await said(tmp_path, node.url, sys.executable, program.name)
            assert matches(program.output, found), f"{program.text}\n{found}"
        for command in guide.commands():
            line = command.line.replace("mpreg ", f"{sys.executable} -m mpreg ", 1)
            found = await said(tmp_path, node.url, "/bin/sh", "-c", line, stderr=subprocess.STDOUT)
            assert matches(command.output, without_columns(found)), f"{command.line}\n{found}"
        _, out, _ = await node.stop()
    assert "orders.eu.new {'id': 1, 'items': ['tea', 'cup']}" in out.splitlines()


def test_its_limits_are_those_of_the_settings() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", TEXT, re.MULTILINE))
    limits = PubSubLimits()
    assert {name: float(default) for name, default in rows.items()} == {
        name: float(getattr(limits, name)) for name in limits.__struct_fields__
    }


def test_it_names_every_code_and_every_count() -> None:
    for name in [code for code in CODES if code.startswith("PUBSUB_")] + list(PubSubStatistics().report()):
        assert f"`{name}`" in TEXT, name


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

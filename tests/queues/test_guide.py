"""The guide's commands and programs, run as they stand, and what they say (`…` is anything)."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.guides import Guide, matches
from tests.node.processes import ENVIRONMENT, serving

pytestmark = pytest.mark.anyio

GUIDE = Guide("docs/queues.md")


async def test_the_commands_say_what_the_guide_says(tmp_path: Path) -> None:
    commands = GUIDE.commands()
    assert len(commands) > 9
    async with serving(tmp_path, "--ws", "0", "--tcp", "0", "--durability", "memory") as served:
        url = str(served.ready["listeners"]["ws"])
        for command in commands:
            done = await asyncio.create_subprocess_shell(
                command.line.replace("mpreg ", f"{sys.executable} -m mpreg "),
                cwd=tmp_path,
                env={**ENVIRONMENT, "MPREG_URL": url, "COLUMNS": "150"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            out, _ = await asyncio.wait_for(done.communicate(), 60)
            assert matches(command.output, out.decode()), f"{command.line}\n{out.decode()}"


async def test_the_programs_do_what_the_guide_says(tmp_path: Path) -> None:
    programs = [program.text for program in GUIDE.programs()]
    assert len(programs) == 2
    (tmp_path / "app.py").write_text(programs[1])
    (tmp_path / "program.py").write_text(
        programs[0]
        + textwrap.dedent("""
            import sys
            asyncio.run(main(sys.argv[1]))
        """)
    )
    async with serving(tmp_path, "app.py", "--ws", "off", "--tcp", "0", "--durability", "memory") as served:
        # The node's own worker competes for the messages of `shop`, so the program has the queue to itself elsewhere.
        own = (tmp_path / "program.py").read_text().replace('"shop"', '"own"')
        (tmp_path / "program.py").write_text(own)
        done = await asyncio.create_subprocess_exec(
            sys.executable,
            "program.py",
            served.url,
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(done.communicate(), 60)
        assert re.fullmatch(r"stored: msg-\S+ memory\ntea 2\ncup 1\npot 1\n3 done\n", out.decode()), out.decode()
        sent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mpreg", "queue", "send", "shop", '{"sku": "tea"}', "--topic", "order.new"),
            env={**ENVIRONMENT, "MPREG_URL": served.url},
        )
        assert await asyncio.wait_for(sent.wait(), 60) == 0
        watched = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mpreg", "queue", "stats", "shop", "--json"),
            env={**ENVIRONMENT, "MPREG_URL": served.url},
            stdout=subprocess.PIPE,
        )
        stats, _ = await asyncio.wait_for(watched.communicate(), 60)
        assert b'"messages_sent": 1' in stats
        _, printed, _ = await served.stop()
    assert "packing tea" in printed

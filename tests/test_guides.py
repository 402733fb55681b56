"""Every program and every command that the guides of the node, its functions, its client and the command line print
is run as it stands, but for the ports, and says what the guide says."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from docs.generate import wanted
from tests.guides import ROOT, Guide, matches
from tests.node.processes import ENVIRONMENT, MPREG, Served, serving

pytestmark = pytest.mark.anyio

FREE = ("--ws", "0", "--tcp", "0", "--store", "off")
PORTS = {"MPREG_WS": "0", "MPREG_TCP": "0", "MPREG_STORE": "off"}


def on_free_ports(text: str, served: Served) -> str:
    """With the addresses of this node in place of the usual ones."""
    listeners = served.ready["listeners"]
    text = text.replace("ws://127.0.0.1:6666", listeners["ws"]).replace("tcp://127.0.0.1:6668", listeners["tcp"])
    return text.replace("6668", listeners["tcp"].rsplit(":", 1)[1])


async def run(argv: list[str], directory: Path, env: dict[str, str] | None = None) -> str:
    done = await asyncio.to_thread(
        subprocess.run,
        argv,
        cwd=directory,
        env={**ENVIRONMENT, "COLUMNS": "200", **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return str(done.stdout)


@pytest.mark.parametrize("page", ["docs/rpc.md", "docs/client.md", "docs/node.md", "docs/protocol.md"])
async def test_the_programs_of_a_guide_print_what_it_says(tmp_path: Path, page: str) -> None:
    programs = Guide(page).programs()
    assert programs
    app = next((program for program in programs if program.name == "app.py"), None)
    if app is not None:
        (tmp_path / "app.py").write_text(app.text)
    async with serving(tmp_path, *(["app.py"] if app is not None else []), *FREE) as served:
        for program in programs:
            if program is app:
                continue
            (tmp_path / program.name).write_text(on_free_ports(program.text, served))
            said = await run([sys.executable, program.name], tmp_path)
            assert program.output is not None, f"{program.name} has no output to compare: {said}"
            assert matches(program.output, said), f"{program.name} printed {said}"


async def test_the_commands_of_the_command_line_say_what_the_guide_says(tmp_path: Path) -> None:
    commands = Guide("docs/cli.md").commands()
    assert len(commands) > 8
    async with serving(tmp_path, str(ROOT / "examples/hello.py"), *FREE) as served:
        for command in commands:
            name, *args = shlex.split(command.line)
            assert name == "mpreg"
            said = await run([*MPREG, *args], tmp_path, {**PORTS, "MPREG_URL": served.url})
            assert matches(command.output, said), f"{command.line} said {said}"


@pytest.mark.parametrize(
    ("example", "says"),
    [
        ("dependent.py", "less\n"),
        ("typed.py", None),
        ("poppo_keys.py", None),
        (
            "cluster.py",
            "red greets you\nblue greets you\nown functions run at home: green\n"
            "published at red, heard at green\ngreen has left: RPC_FUNCTION_NOT_FOUND\n",
        ),
    ],
)
async def test_an_example_runs_as_it_stands(tmp_path: Path, example: str, says: str | None) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(ROOT / "examples" / example)],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout if says is None else done.stdout == says


def test_what_the_docs_quote_from_the_source_is_up_to_date() -> None:
    stale = [path.name for path, text in wanted().items() if not path.exists() or path.read_text() != text]
    assert not stale, "run scripts/docs"


def test_every_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            path = (page.parent / target).resolve() if target else page
            assert path.exists(), f"{page.name}: {target}"
            if anchor and path.suffix == ".md":
                titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
                assert anchor in anchors, f"{page.name}: {target}#{anchor}"

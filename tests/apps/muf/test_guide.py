"""docs/muf.md is run as it stands, but for the store's address: its programs and commands (`…` is anything)."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.servers import Server, valkey

from mpreg.errors import CODES

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "muf.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", GUIDE, re.DOTALL)
PROGRAMS = [block for language, block in BLOCKS if language == "python"]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_prints_what_it_says(number: int) -> None:
    program = PROGRAMS[number]
    (says,) = re.findall(r"print\(.*\)  # (.*)", program)
    with valkey() as server:
        assert "valkey://127.0.0.1" in program
        program = program.replace("valkey://127.0.0.1", server.url)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (says + "\n", "")


def test_the_commands_say_what_they_say() -> None:
    (shell,) = [block for language, block in BLOCKS if language == "console"]
    with valkey() as server:
        environment = {**os.environ, "MPREG_STORE": server.url, "COLUMNS": "200"}
        serving: list[subprocess.Popen[str]] = []
        try:
            for part in re.split(r"^\$ ", shell, flags=re.MULTILINE)[1:]:
                command, _, says = part.partition("\n")
                words = shlex.split(command.removesuffix(" &"))
                assert words[0] == "mpreg"
                process = subprocess.Popen(
                    [sys.executable, "-m", *words],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                if command.endswith(" &"):
                    assert process.stdout is not None
                    serving.append(process)
                    said = process.stdout.readline()
                else:
                    said, _ = process.communicate(timeout=60)
                wanted = re.escape(" ".join(says.split())).replace("…", ".*")
                assert re.fullmatch(wanted, " ".join(said.split()), re.DOTALL), f"{command}\n{said}"
        finally:
            for process in serving:
                process.terminate()
                process.communicate(timeout=20)


def test_a_node_answers_as_the_guide_says(tmp_path: Path) -> None:
    asked, answer = re.search(r"REQ/greet\.1 '(.*)' EX 10\n.*RES/greet\.1\n(.*)\n", GUIDE).groups()  # type: ignore[union-attr]
    (tmp_path / "app.py").write_text(
        "from mpreg import Node\nnode = Node('app')\n\n@node.function\nasync def greet(name: str) -> str:\n"
        "    return f'Hello, {name}!'\n"
    )
    with valkey() as server:
        server.call("SET", "MUF/ME/REQ/greet.1", asked, "EX", 60)
        command = ["mpreg", "serve", "app.py", "--muf", "--ws", "off", "--tcp", "0", "--store", server.url]
        with subprocess.Popen([sys.executable, "-m", *command], cwd=tmp_path, stdout=subprocess.PIPE) as process:
            try:
                assert until_there(server, "MUF/ME/RES/greet.1") == answer.encode()
            finally:
                process.terminate()


def until_there(server: Server, key: str) -> bytes:
    while (value := server.call("GET", key)) is None:
        server.call("BLPOP", "nothing", 0.05)
    return bytes(value)


def test_every_error_of_units_is_told() -> None:
    names = {"MufTimeout", "MufRemoteError", "MufIdInUse", "MufBusy", "MufConnectionLost"}
    assert len(names) == sum(code.startswith("MUF_") for code in CODES)
    for name in names:
        assert f"| `{name}` |" in GUIDE

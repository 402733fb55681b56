"""`mpreg` itself: its list of commands, and that looking at it costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.cli.conftest import Mpreg

from mpreg.cli import COMMANDS


def test_help_lists_every_command(mpreg: Mpreg) -> None:
    said = mpreg("--help")
    assert said.code == 0
    for name, (_, line) in COMMANDS.items():
        assert name in said.out
        assert line in said.out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(mpreg: Mpreg, command: str) -> None:
    said = mpreg(command, "--help")
    assert (said.code, said.err) == (0, "")
    assert "Usage" in said.out


def test_an_unknown_command_is_wrong_usage(mpreg: Mpreg) -> None:
    assert mpreg("fly").code == 2


def test_the_version_is_told(mpreg: Mpreg) -> None:
    from mpreg import __version__

    assert __version__ in mpreg("--version").out


def test_help_imports_neither_a_node_nor_a_client() -> None:
    code = "import sys; from mpreg.cli import cli; cli(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.split()
    assert not {"mpreg.node", "mpreg.client", "mpreg.transport", "mpreg.store", "uvloop"} & set(loaded)

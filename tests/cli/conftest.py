from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.certificates import make_certificates
from tests.conformance.served import Served
from tests.node.processes import ENVIRONMENT, MPREG


class Said(NamedTuple):
    code: int
    out: str
    err: str


Mpreg = Callable[..., Said]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A node in a process of its own, with all four listeners."""
    with Served(make_certificates(tmp_path_factory.mktemp("certificates"))) as node:
        yield node
        node.stop()


@pytest.fixture
def mpreg(tmp_path: Path) -> Mpreg:
    """One command, as a process in a folder of its own."""

    def run(*args: str, **env: str) -> Said:
        done = subprocess.run(
            [*MPREG, *args],
            cwd=tmp_path,
            env={**ENVIRONMENT, "COLUMNS": "200", **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def at(served: Served, mpreg: Mpreg) -> Mpreg:
    """One command for the node `served`."""
    return lambda *args, **env: mpreg(*args, MPREG_URL=served.listeners["ws"], **env)


__all__ = ["Mpreg", "Said"]

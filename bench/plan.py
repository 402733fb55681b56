"""What a group of cases declares: its peers, what each needs to be there, and the ratios that it aims at."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import msgspec

ROOT = Path(__file__).resolve().parent.parent


class Module(msgspec.Struct, frozen=True):
    """A Python package that a peer needs."""

    name: str
    how: str = "scripts/bench installs the extra [bench]"

    def missing(self) -> str | None:
        try:
            found = importlib.util.find_spec(self.name) is not None
        except ModuleNotFoundError:
            found = False
        return None if found else f"python package {self.name}: {self.how}"


class Program(msgspec.Struct, frozen=True):
    """A program that a peer needs."""

    name: str
    how: str

    def missing(self) -> str | None:
        return None if shutil.which(self.name) else f"program {self.name}: {self.how}"


class Ours(msgspec.Struct, frozen=True):
    """A name of MPREG itself, `package:attribute`, that this checkout may not have yet."""

    name: str

    def missing(self) -> str | None:
        module, _, attribute = self.name.partition(":")
        try:
            found = hasattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError:
            found = False
        return None if found else f"{self.name} is not in this checkout of MPREG"


class Peer(msgspec.Struct, frozen=True):
    """One row of the table. `roles` is the module with its role functions, `config` what it hands to them."""

    name: str
    roles: str
    needs: tuple[Module | Program | Ours, ...] = ()
    server: str | None = None
    """A key of `servers.STARTERS`: the broker that stands between the roles."""
    config: Mapping[str, Any] = {}
    venv: str = ""
    """Its packages contradict the others': its roles run in `.venv-<this>`."""

    def missing(self) -> str | None:
        if self.venv and not interpreter(self.venv).exists():
            return f"the environment .venv-{self.venv}: scripts/bench makes it"
        return next((reason for need in self.needs if (reason := need.missing())), None)


def interpreter(venv: str) -> Path:
    return ROOT / f".venv-{venv}" / "bin" / "python"


class Aim(msgspec.Struct, frozen=True):
    """`ours` against `peer` in one metric of one case, measured in the same rounds. `at_least` compares ours/peer,
    `at_most` likewise; neither makes the run fail."""

    case: str
    metric: str
    ours: str
    peer: str
    at_least: float | None = None
    at_most: float | None = None

    def verdict(self, ratio: float) -> str:
        if self.at_least is not None:
            return f"{'meets' if ratio >= self.at_least else 'MISSES'} >= {self.at_least:g}"
        if self.at_most is not None:
            return f"{'meets' if ratio <= self.at_most else 'MISSES'} <= {self.at_most:g}"
        return ""


class Measured(msgspec.Struct, frozen=True):
    """One case of one round: metric -> (value, unit), and the cores that each process used meanwhile."""

    figures: Mapping[str, tuple[float, str]]
    cpu: Mapping[str, float] = {}


class Options(msgspec.Struct, frozen=True):
    group: str
    secs: float = 2.0
    reps: int = 3
    only: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    out: str | None = None
    loop: str = "uvloop"

    def wants_case(self, case: str) -> bool:
        return not self.cases or any(part in case for part in self.cases)


Trial = Callable[[Peer, "Any"], dict[str, Measured]]


class Group(Protocol):
    """What a module of cases offers. `trial` runs all its cases once for one peer."""

    PEERS: tuple[Peer, ...]
    AIMS: tuple[Aim, ...]
    trial: Trial


def load_group(name: str) -> ModuleType:
    return importlib.import_module(f"bench.{name}")


def wanted(peers: tuple[Peer, ...], only: tuple[str, ...]) -> list[Peer]:
    return [peer for peer in peers if not only or any(part in peer.name for part in only)]

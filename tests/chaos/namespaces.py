"""Machines with a network of their own: namespaces on two bridges, so that it can really be cut in two."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Iterator


def missing() -> str | None:
    """Why there can be none here."""
    if shutil.which("ip") is None:
        return "needs the program ip (apt-get install iproute2)"
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    name = f"mp{secrets.token_hex(3)}"
    try:
        _ip("netns", "add", name)
        _ip("link", "add", name, "type", "bridge")
    except subprocess.CalledProcessError as problem:
        return f"this machine allows no network namespaces: {problem.stderr.decode().strip()}"
    finally:
        for kind in ("netns", "link"):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip(kind, "del", name)
    return None


class Network:
    """One namespace for each name, with an address each."""

    def __init__(self, names: Iterable[str]) -> None:
        self.tag = secrets.token_hex(3)
        self.names = list(names)
        self._subnet = f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(250)}"

    def address(self, name: str) -> str:
        return f"{self._subnet}.{self.names.index(name) + 1}"

    def inside(self, name: str) -> list[str]:
        """What a command begins with to run there."""
        return ["ip", "netns", "exec", self._namespace(name)]

    def cut_off(self, names: Iterable[str]) -> None:
        """These reach each other, and nobody else."""
        for name in names:
            _ip("link", "set", self._cable(name), "master", f"mp{self.tag}y")

    def heal(self) -> None:
        for name in self.names:
            _ip("link", "set", self._cable(name), "master", f"mp{self.tag}x")

    @contextlib.contextmanager
    def up(self) -> Iterator[Network]:
        with contextlib.ExitStack() as undo:
            for bridge in "xy":
                _ip("link", "add", f"mp{self.tag}{bridge}", "type", "bridge")
                undo.callback(_ip, "link", "del", f"mp{self.tag}{bridge}")
                _ip("link", "set", f"mp{self.tag}{bridge}", "up")
            for name in self.names:
                space, cable, other = self._namespace(name), self._cable(name), f"{self._cable(name)}i"
                _ip("netns", "add", space)
                undo.callback(_ip, "netns", "del", space)
                _ip("link", "add", cable, "type", "veth", "peer", "name", other)
                _ip("link", "set", other, "netns", space)
                _ip("link", "set", cable, "up")
                for command in (
                    ("addr", "add", f"{self.address(name)}/24", "dev", other),
                    ("link", "set", other, "up"),
                ):
                    _ip("-n", space, *command)
                _ip("-n", space, "link", "set", "lo", "up")
            self.heal()
            yield self

    def _namespace(self, name: str) -> str:
        return f"mp{self.tag}{name}"

    def _cable(self, name: str) -> str:
        return f"mp{self.tag}{name}v"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)

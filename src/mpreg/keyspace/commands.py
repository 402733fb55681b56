"""What declared keys need of a store: one command, one script. `mpreg.store.Store` is one."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, Protocol

from mpreg.store.script import Script


class Commands(Protocol):
    def command(self, *args: Any) -> Awaitable[Any]: ...


class Scripting(Commands, Protocol):
    def script(self, script: Script, keys: Iterable[Any] = ..., args: Iterable[Any] = ...) -> Awaitable[Any]: ...

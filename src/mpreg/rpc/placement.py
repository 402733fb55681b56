"""Where a command runs. This node's own functions here; a cluster places commands on other nodes the same way."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from msgspec import Raw

from mpreg.rpc.execution import LocalFunction
from mpreg.rpc.registry import Function, Registry
from mpreg.rpc.threads import Threads
from mpreg.wire.encoding import Encoding
from mpreg.wire.rpc import Command


class Provider(Protocol):
    """Who runs one command and returns its result in the given encoding.

    Both ways raise `MpregError` and nothing else, but for the `CancelledError` of a caller that was cancelled.
    """

    @property
    def waits(self) -> bool:
        """Is it known that the result is not there at once?"""

    def call(self, command: Command, encoding: Encoding, timeout_s: float) -> Awaitable[Raw]:
        """The command as it came."""

    def call_plain(
        self, command: Command, args: list[Any], kwargs: dict[str, Any], encoding: Encoding, timeout_s: float
    ) -> Awaitable[Raw]:
        """The command with arguments in which references have been resolved."""


class Placement(Protocol):
    def place(self, fun: str, locs: Sequence[str]) -> Provider:
        """Raises `RPC_FUNCTION_NOT_FOUND` or `RPC_RESOURCE_NOT_FOUND` at once (R-R4)."""


class LocalPlacement:
    """Only this node."""

    def __init__(self, registry: Registry, threads: Threads, debug: bool = False) -> None:
        self.registry = registry
        self._threads = threads
        self._debug = debug
        # Made now, so that a function whose signature can't be understood keeps the node from starting.
        self._providers = {function: LocalFunction(function, threads, debug) for function in registry}

    def place(self, fun: str, locs: Sequence[str]) -> Provider:
        return self._provider(self.registry.find(fun, locs))

    def look(self, fun: str, locs: Sequence[str]) -> LocalFunction | None:
        function = self.registry.look(fun, locs)
        return None if function is None else self._provider(function)

    def has(self, fun: str) -> bool:
        """With whatever resources."""
        return self.registry.has(fun)

    def _provider(self, function: Function) -> LocalFunction:
        provider = self._providers.get(function)
        if provider is None:
            provider = self._providers[function] = LocalFunction(function, self._threads, self._debug)
        return provider

"""The functions that every node has (R-R8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpreg.rpc import Registry


async def echo(value: Any) -> Any:
    """The argument itself."""
    return value


async def echos(*values: Any) -> list[Any]:
    """All arguments, as a list."""
    return list(values)


def add_builtins(
    registry: Registry,
    name: Callable[[], str],
    describe: Callable[[], dict[str, Any]],
    statistics: Callable[[], dict[str, Any]],
) -> None:
    async def functions() -> list[dict[str, Any]]:
        """Every function: name, documentation, JSON Schema of arguments and result, resources, providers."""
        return [{**function.describe(), "providers": [name()]} for function in registry]

    async def nodes() -> list[dict[str, Any]]:
        """The nodes of this cluster."""
        return [describe()]

    async def stats() -> dict[str, Any]:
        """What this node counts."""
        return statistics()

    registry.add(echo, idempotent=True)
    registry.add(echos, idempotent=True)
    registry.add(echo, "mpreg.echo", idempotent=True)
    registry.add(functions, "mpreg.functions", idempotent=True)
    registry.add(nodes, "mpreg.nodes", idempotent=True)
    registry.add(stats, "mpreg.stats", idempotent=True)

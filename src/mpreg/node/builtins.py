"""The functions that every node has (R-R8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from msgspec import Meta

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
    topic_rates: Callable[[str, float, int], Awaitable[dict[str, Any]]],
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

    async def topics(
        pattern: str = "#",
        seconds: Annotated[float, Meta(gt=0, le=60)] = 1.0,
        depth: Annotated[int, Meta(ge=1, le=64)] = 1,
    ) -> dict[str, Any]:
        """Messages and bytes a second that are published at this node within the next seconds, by the first levels of
        their topic, the busiest first."""
        return await topic_rates(pattern, seconds, depth)

    registry.add(echo, idempotent=True)
    registry.add(echos, idempotent=True)
    registry.add(echo, "mpreg.echo", idempotent=True)
    registry.add(functions, "mpreg.functions", idempotent=True)
    registry.add(nodes, "mpreg.nodes", idempotent=True)
    registry.add(stats, "mpreg.stats", idempotent=True)
    registry.add(topics, "mpreg.topics", idempotent=True)

"""The functions that every node has (R-R8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from mpreg.rpc import Registry

if TYPE_CHECKING:
    from mpreg.node.services import Services


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
    services: Callable[[], Services],
) -> None:
    async def own_functions() -> list[dict[str, Any]]:
        """The functions of the node that is asked, and no other."""
        return [{**function.describe(), "providers": [name()]} for function in registry]

    async def functions() -> list[dict[str, Any]]:
        """Every function of the cluster: name, documentation, JSON Schema of arguments and result, resources,
        providers."""
        own = await own_functions()
        clustering = services().clustering
        return own if clustering is None else await clustering.functions(own)

    async def nodes() -> list[dict[str, Any]]:
        """The nodes of this cluster, as the node that is asked sees them."""
        clustering = services().clustering
        return [describe()] if clustering is None else clustering.nodes(describe())

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

    async def state() -> list[dict[str, Any]]:
        """What the nodes of the cluster share: key, value, version, who set it."""
        return services().in_cluster().state()

    async def wanted() -> dict[str, list[str]]:
        """Which patterns are subscribed to, by node."""
        pubsub = services().pubsub
        return services().in_cluster().topics(sorted(map(".".join, pubsub.interest)))

    async def store() -> str | None:
        """Where the store is that this node shares with others on its machine, if it does."""
        return services().shared_store

    async def refusals() -> dict[str, str]:
        """Addresses of nodes that were tried without success, and why."""
        return services().in_cluster().refusals()

    async def leave() -> str:
        """The node that is asked leaves its cluster in good order. It goes on serving its own clients."""
        services().in_cluster().cluster.leave()
        return name()

    registry.add(echo, idempotent=True)
    registry.add(echos, idempotent=True)
    registry.add(echo, "mpreg.echo", idempotent=True)
    registry.add(functions, "mpreg.functions", idempotent=True)
    registry.add(own_functions, "mpreg.node.functions", idempotent=True)
    registry.add(nodes, "mpreg.nodes", idempotent=True)
    registry.add(stats, "mpreg.stats", idempotent=True)
    registry.add(topics, "mpreg.topics", idempotent=True)
    registry.add(state, "mpreg.cluster.state", idempotent=True)
    registry.add(wanted, "mpreg.cluster.topics", idempotent=True)
    registry.add(store, "mpreg.cluster.store", idempotent=True)
    registry.add(refusals, "mpreg.cluster.refusals", idempotent=True)
    registry.add(leave, "mpreg.cluster.leave")

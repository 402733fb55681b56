"""Functions whose results are kept in the cluster's cache, by their arguments: `@node.function(cache=60)`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from mpreg.cache import Cache
from mpreg.client.cache_arguments import identifier_of

NAMESPACE: Final = "mpreg.functions"


class Cached(msgspec.Struct, frozen=True, kw_only=True):
    """How results are kept. `ttl`, `stale` and `negative_ttl` are seconds: how long a result is fresh (None: until it
    is removed), may be served after that while it is computed anew, and how long None is kept as a result."""

    ttl: float | None = None
    stale: float | None = None
    negative_ttl: float | None = None
    namespace: str = NAMESPACE
    tags: tuple[str, ...] = ()


def cached(
    call: Callable[..., Any],
    how: Cached,
    name: str | None,
    cache: Callable[[], Cache | None],
    in_thread: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Awaitable[Any]],
) -> Callable[..., Awaitable[Any]]:
    """The same function, computed once in the cluster for each set of arguments (R-C7)."""
    identifier = identifier_of(call, name or call.__qualname__)
    is_async = inspect.iscoroutinefunction(call)

    @functools.wraps(call)
    async def run(*args: Any, **kwargs: Any) -> Any:
        async def compute() -> Any:
            return await (call(*args, **kwargs) if is_async else in_thread(call, args, kwargs))

        there = cache()
        if there is None:
            return await compute()
        return await there.get_or_compute(
            how.namespace,
            identifier(*args, **kwargs),
            compute,
            ttl_s=how.ttl,
            stale_s=how.stale,
            negative_ttl_s=how.negative_ttl,
            tags=how.tags,
        )

    return run

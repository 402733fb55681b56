"""Values that are computed when they are not there: by one caller in the cluster, for all who ask (R-C7)."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload

from msgspec import UNSET

from mpreg.client.cache_arguments import identifier_of
from mpreg.client.caches import Caches
from mpreg.errors import CacheError
from mpreg.wire.cache import CacheOptions

if TYPE_CHECKING:
    from mpreg.client.cache import Cache

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LEASE_MS: Final = 5_000.0
"""While a value is computed here, nobody else is told to; renewed at a third of it."""

_NOTHING: Final = object()


class Computing:
    """A part of `Cache`, which offers its public methods as its own."""

    def __init__(self, cache: Cache, caches: Caches) -> None:
        self._cache = cache
        self._caches = caches

    async def get_or_compute(
        self,
        identifier: str,
        compute: Callable[[], Awaitable[T]],
        *,
        ttl: float | None = None,
        stale: float | None = None,
        negative_ttl: float | None = None,
        tags: Iterable[str] = (),
        depends_on: Iterable[str] = (),
        value_type: Any = Any,
        timeout: float = 60.0,
    ) -> T:
        """The value; if it is not there, `compute()` of exactly one caller in the cluster. The others wait for it, up
        to `timeout`. If that caller dies, one of them takes over. A result of None is not kept, unless `negative_ttl`
        says how long. When the store is gone the value is computed, and not kept."""
        if self._cache.is_near:
            held: Any = await self._cache.get_near(identifier, _NOTHING, value_type, None)
            if held is not _NOTHING:
                near: T = held
                return near
        key = (self._cache.namespace, identifier, self._cache.version)
        task = self._caches.computing.get(key)
        if task is None:
            work = self._compute(
                identifier, compute, ttl, stale, negative_ttl, tuple(tags), tuple(depends_on), value_type, timeout
            )
            task = self._caches.computing[key] = self._caches.spawn(work)
            task.add_done_callback(lambda done: self._caches.computing.pop(key, None))
        value: T = await asyncio.shield(task)
        return value

    async def _compute(
        self,
        identifier: str,
        compute: Callable[[], Awaitable[T]],
        ttl: float | None,
        stale: float | None,
        negative_ttl: float | None,
        tags: tuple[str, ...],
        depends_on: tuple[str, ...],
        value_type: Any,
        timeout: float,
    ) -> Any:
        try:
            response = await self._cache.ask_get(
                identifier, CacheOptions(lease_ms=LEASE_MS, timeout_ms=timeout * 1000), timeout
            )
        except CacheError as error:
            if error.code != "CACHE_STORE_UNAVAILABLE":
                raise
            return await compute()
        found = None if response.entry is UNSET else response.entry
        if response.lease is not UNSET:
            lease = response.lease

            async def refresh() -> Any:
                begun = time.monotonic()
                try:
                    value = await self._while_renewed(identifier, lease, compute)
                except BaseException:
                    self._give_back(identifier, lease)
                    raise
                kept_s = negative_ttl if value is None and negative_ttl is not None else ttl
                if value is None and negative_ttl is None:
                    self._give_back(identifier, lease)
                    return value
                took_ms = (time.monotonic() - begun) * 1000
                options = CacheOptions(lease=lease)
                try:
                    await self._cache.put_with(
                        identifier, value, kept_s, stale if value is not None else None, tags, depends_on, took_ms,
                        options, None,
                    )  # fmt: skip
                except CacheError as error:  # deleted meanwhile, or the store is gone: the caller has it all the same
                    if error.code not in ("CACHE_LEASE_LOST", "CACHE_STORE_UNAVAILABLE"):
                        raise
                return value

            if found is None:
                return await refresh()
            self._caches.spawn(refresh())
        assert found is not None
        return self._cache.value(found.value, value_type)

    async def _while_renewed(self, identifier: str, lease: str, compute: Callable[[], Awaitable[T]]) -> T:
        async def keep() -> None:
            options = CacheOptions(lease=lease, lease_ms=LEASE_MS)
            while True:
                await asyncio.sleep(LEASE_MS / 3000)
                await self._caches.ask("renew_lease", key=self._cache.key(identifier), options=options)

        keeping = self._caches.spawn(keep())
        try:
            return await compute()
        finally:
            keeping.cancel()

    def _give_back(self, identifier: str, lease: str) -> None:
        self._caches.spawn(
            self._caches.ask("release_lease", key=self._cache.key(identifier), options=CacheOptions(lease=lease))
        )

    @overload
    def memoize(self, call: Callable[P, Awaitable[R]], /) -> Callable[P, Awaitable[R]]: ...

    @overload
    def memoize(
        self,
        /,
        *,
        ttl: float | None = ...,
        stale: float | None = ...,
        negative_ttl: float | None = ...,
        tags: Iterable[str] = ...,
        name: str | None = ...,
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]: ...

    def memoize(
        self,
        call: Callable[..., Awaitable[Any]] | None = None,
        /,
        *,
        ttl: float | None = None,
        stale: float | None = None,
        negative_ttl: float | None = None,
        tags: Iterable[str] = (),
        name: str | None = None,
    ) -> Any:
        """Keep the results of an async function, by its arguments: once computed, known to every process that has a
        function of this name. `f.identifier(…)` is the key of a call, `await f.forget(…)` removes its result. For
        functions that are not async, use `mpreg.sync`."""

        def decorate(call: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
            if not inspect.iscoroutinefunction(call):
                raise TypeError(f"{call!r} is not async; memoize it with mpreg.sync")
            identifier = identifier_of(call, name)
            result_type = inspect.get_annotations(call, eval_str=True).get("return", Any)

            @functools.wraps(call)
            async def memoized(*args: P.args, **kwargs: P.kwargs) -> R:
                return await self.get_or_compute(
                    identifier(*args, **kwargs),
                    lambda: call(*args, **kwargs),
                    ttl=ttl,
                    stale=stale,
                    negative_ttl=negative_ttl,
                    tags=tags,
                    value_type=result_type,
                )

            async def forget(*args: P.args, **kwargs: P.kwargs) -> bool:
                return bool(await self._cache.delete(identifier(*args, **kwargs)))

            memoized.identifier = identifier  # type: ignore[attr-defined]
            memoized.forget = forget  # type: ignore[attr-defined]
            return memoized

        return decorate if call is None else decorate(call)

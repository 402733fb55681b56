"""The cache for scripts and notebooks: each call is waited for. What calls mean: cache.py."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar

from mpreg.client import cache as asynchronous
from mpreg.client.cache import Consistency, Found, Notify
from mpreg.client.cache_arguments import identifier_of
from mpreg.client.cache_structures import View
from mpreg.wire.cache import MergeStrategy

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Run(Protocol):
    """Runs a coroutine on the loop of the client, and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class Cache:
    """Made by `client.cache(namespace)` of `mpreg.sync`."""

    def __init__(self, run: Run, cache: asynchronous.Cache) -> None:
        self._run = run
        self._cache = cache
        self.namespace = cache.namespace

    def get(
        self,
        identifier: str,
        default: Any = None,
        *,
        consistency: Consistency = "eventual",
        value_type: Any = Any,
        timeout: float | None = None,
    ) -> Any:
        return self._run(
            self._cache.get(identifier, default, consistency=consistency, value_type=value_type, timeout=timeout)
        )

    def get_entry(
        self, identifier: str, *, consistency: Consistency = "eventual", value_type: Any = Any
    ) -> Found | None:
        return self._run(self._cache.get_entry(identifier, consistency=consistency, value_type=value_type))

    def get_many(
        self, identifiers: Iterable[str], *, consistency: Consistency = "eventual", value_type: Any = Any
    ) -> dict[str, Any]:
        return self._run(self._cache.get_many(identifiers, consistency=consistency, value_type=value_type))

    def put(
        self,
        identifier: str,
        value: Any,
        *,
        ttl: float | None = None,
        stale: float | None = None,
        tags: Iterable[str] = (),
        depends_on: Iterable[str] = (),
        cost_ms: float = 0.0,
        notify: Notify | None = None,
        replicas: int | None = None,
        timeout: float | None = None,
    ) -> int:
        return self._run(
            self._cache.put(
                identifier,
                value,
                ttl=ttl,
                stale=stale,
                tags=tags,
                depends_on=depends_on,
                cost_ms=cost_ms,
                notify=notify,
                replicas=replicas,
                timeout=timeout,
            )
        )

    def delete(self, identifier: str, *, cascade: bool = False, notify: Notify | None = None) -> int:
        return self._run(self._cache.delete(identifier, cascade=cascade, notify=notify))

    def invalidate(
        self,
        pattern: str | None = None,
        *,
        tag: str | None = None,
        depends_on: str | None = None,
        cascade: bool = True,
        reason: str | None = None,
    ) -> int:
        return self._run(
            self._cache.invalidate(pattern, tag=tag, depends_on=depends_on, cascade=cascade, reason=reason)
        )

    def incr(self, identifier: str, by: float = 1, *, initial: float = 0, ttl: float | None = None) -> Any:
        return self._run(self._cache.incr(identifier, by, initial=initial, ttl=ttl))

    def compare_and_swap(
        self, identifier: str, expected: Any, new: Any, *, create: bool = False, ttl: float | None = None
    ) -> bool:
        return self._run(self._cache.compare_and_swap(identifier, expected, new, create=create, ttl=ttl))

    def add(self, identifier: str, value: Any, *, ttl: float | None = None) -> bool:
        return self._run(self._cache.add(identifier, value, ttl=ttl))

    def append(self, identifier: str, value: Any, *, front: bool = False) -> Any:
        return self._run(self._cache.append(identifier, value, front=front))

    def extend_ttl(self, identifier: str, ttl: float) -> bool:
        return self._run(self._cache.extend_ttl(identifier, ttl))

    def set(self, identifier: str, *, ttl: float | None = None) -> Waited:
        return Waited(self._run, self._cache.set(identifier, ttl=ttl))

    def list(self, identifier: str, *, ttl: float | None = None) -> Waited:
        return Waited(self._run, self._cache.list(identifier, ttl=ttl))

    def map(self, identifier: str, *, ttl: float | None = None) -> Waited:
        return Waited(self._run, self._cache.map(identifier, ttl=ttl))

    def sorted_set(self, identifier: str, *, ttl: float | None = None) -> Waited:
        return Waited(self._run, self._cache.sorted_set(identifier, ttl=ttl))

    def get_or_compute(self, identifier: str, compute: Callable[[], T], *, value_type: Any = Any, **how: Any) -> T:
        """`compute` runs in a thread of its own. `how` is as of the asyncio client: `ttl`, `stale`, `negative_ttl`,
        `tags`, `depends_on`, `timeout`."""

        async def in_thread() -> T:
            return await asyncio.to_thread(compute)

        return self._run(self._cache.get_or_compute(identifier, in_thread, value_type=value_type, **how))

    def memoize(self, call: Callable[..., Any] | None = None, /, *, name: str | None = None, **how: Any) -> Any:
        """Keep the results of a function by its arguments; `how` as of `get_or_compute`."""

        def decorate(call: Callable[P, R]) -> Callable[P, R]:
            if inspect.iscoroutinefunction(call):
                raise TypeError(f"{call!r} is async; memoize it with the asyncio client")
            identifier = identifier_of(call, name)
            result_type = inspect.get_annotations(call, eval_str=True).get("return", Any)

            @functools.wraps(call)
            def memoized(*args: P.args, **kwargs: P.kwargs) -> R:
                return self.get_or_compute(
                    identifier(*args, **kwargs), lambda: call(*args, **kwargs), value_type=result_type, **how
                )

            def forget(*args: P.args, **kwargs: P.kwargs) -> bool:
                return bool(self.delete(identifier(*args, **kwargs)))

            memoized.identifier = identifier  # type: ignore[attr-defined]
            memoized.forget = forget  # type: ignore[attr-defined]
            return memoized

        return decorate if call is None else decorate(call)

    def keys(self, pattern: str = "*", *, conditions: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        return self._iterate(self._cache.keys(pattern, conditions=conditions))

    def clear(
        self,
        pattern: str = "*",
        *,
        conditions: Mapping[str, Any] | None = None,
        max_entries: int | None = None,
        dry_run: bool = False,
    ) -> int:
        return self._run(self._cache.clear(pattern, conditions=conditions, max_entries=max_entries, dry_run=dry_run))

    def statistics(self, *, detailed: bool = False) -> dict[str, Any]:
        return self._run(self._cache.statistics(detailed=detailed))

    def backup(self, pattern: str = "*") -> Iterator[bytes]:
        return self._iterate(self._cache.backup(pattern))

    def restore(self, page: bytes, *, merge: MergeStrategy = "skip") -> tuple[int, int]:
        return self._run(self._cache.restore(page, merge=merge))

    def _iterate(self, pages: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> T:
            return await anext(pages)

        while True:
            try:
                yield self._run(following())
            except StopAsyncIteration:
                return

    def __repr__(self) -> str:
        return repr(self._cache)


class Waited:
    """A set, list, map or sorted set: the calls of the asyncio view, each waited for."""

    def __init__(self, run: Run, view: View) -> None:
        self._run = run
        self._view = view

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._view, name)

        @functools.wraps(call)
        def waited(*args: Any, **kwargs: Any) -> Any:
            return self._run(call(*args, **kwargs))

        return waited

    def __repr__(self) -> str:
        return repr(self._view)

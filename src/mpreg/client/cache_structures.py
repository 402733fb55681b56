"""Sets, lists, maps and sorted sets in the cache, as views of one key each. Every call is exact across the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Raw

from mpreg.errors import CacheError
from mpreg.wire import codec
from mpreg.wire.cache import RangeSpec, ScoredValue, StructureOperation, StructureOptions, StructureType
from mpreg.wire.encoding import Encoding

Run = Callable[[str, StructureOperation], Awaitable[Any]]
"""Asks the node; the operation's `result`."""


class View:
    kind: StructureType

    def __init__(self, identifier: str, run: Run, encoding: Encoding, ttl: float | None) -> None:
        self.identifier = identifier
        self._run = run
        self._encoding = encoding
        self._ttl = ttl

    async def _do(self, operation: Any, **fields: Any) -> Any:
        if self._ttl is not None:
            fields["ttl_seconds"] = self._ttl
        asked = StructureOperation(structure_type=self.kind, operation=operation, **fields)
        return await self._run(self.identifier, asked)

    def _raw(self, values: Iterable[Any]) -> tuple[Raw, ...]:
        return tuple(raw_value(value, self._encoding) for value in values)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.identifier}>"


def raw_value(value: Any, encoding: Encoding) -> Raw:
    try:
        return Raw(codec.encode_value(value, encoding))
    except Exception as problem:
        raise CacheError("CACHE_UNENCODABLE", f"{value!r:.80} has no encoding") from problem


class CachedSet(View):
    kind = "set"

    async def add(self, *values: Any) -> int:
        """How many were not in it before."""
        return int((await self._do("add", values=self._raw(values)))["changed"])

    async def remove(self, *values: Any) -> int:
        return int((await self._do("remove", values=self._raw(values)))["changed"])

    async def contains(self, value: Any) -> bool:
        return bool((await self._do("contains", values=self._raw([value])))["values"][0])

    async def contains_all(self, *values: Any) -> list[bool]:
        """One answer for each."""
        return list((await self._do("contains", values=self._raw(values)))["values"])

    async def size(self) -> int:
        return int((await self._do("size"))["size"])

    async def members(self) -> list[Any]:
        return list((await self._do("members"))["values"])

    async def union(self, *others: str) -> list[Any]:
        """Others are named `namespace:identifier`."""
        return await self._with("union", others)

    async def intersection(self, *others: str) -> list[Any]:
        return await self._with("intersection", others)

    async def difference(self, *others: str) -> list[Any]:
        return await self._with("difference", others)

    async def _with(self, operation: str, others: tuple[str, ...]) -> list[Any]:
        return list((await self._do(operation, options=StructureOptions(other_sets=others)))["values"])


class CachedList(View):
    kind = "list"

    async def append(self, *values: Any) -> int:
        """How long it is then."""
        return int((await self._do("append", values=self._raw(values)))["size"])

    async def prepend(self, *values: Any) -> int:
        return int((await self._do("prepend", values=self._raw(values)))["size"])

    async def insert(self, index: int, *values: Any) -> int:
        """Before what is at `index`; `CACHE_OUT_OF_RANGE` if it is not that long."""
        return int((await self._do("insert", index=index, values=self._raw(values)))["size"])

    async def pop_front(self) -> Any:
        """None if it is empty."""
        return (await self._do("pop_front"))["value"]

    async def pop_back(self) -> Any:
        return (await self._do("pop_back"))["value"]

    async def range(self, start: int = 0, end: int | None = None) -> list[Any]:
        """As a Python slice."""
        return list((await self._do("get_range", range_spec=RangeSpec(start=start, end=end)))["values"])

    async def length(self) -> int:
        return int((await self._do("length"))["size"])


class CachedMap(View):
    """A field may be a path into maps within: `user.preferences.theme`."""

    kind = "map"

    async def set(self, fields: Mapping[str, Any]) -> int:
        """How many of the fields are new."""
        updates = {name: raw_value(value, self._encoding) for name, value in fields.items()}
        return int((await self._do("set_field", field_updates=updates))["changed"])

    async def get(self, field: str, default: Any = None) -> Any:
        return (await self._do("get_fields", fields=(field,)))["fields"].get(field, default)

    async def get_many(self, *fields: str) -> dict[str, Any]:
        """Those that are there."""
        return dict((await self._do("get_fields", fields=fields))["fields"])

    async def remove(self, *fields: str) -> int:
        return int((await self._do("remove_fields", fields=fields))["changed"])

    async def incr(self, field: str, by: float = 1) -> Any:
        """The new value; a field that is not there counts as 0."""
        updates = {field: raw_value(by, self._encoding)}
        return (await self._do("increment_field", field_updates=updates))["value"]

    async def keys(self) -> list[str]:
        return list((await self._do("keys"))["values"])

    async def values(self) -> list[Any]:
        return list((await self._do("values"))["values"])

    async def size(self) -> int:
        return int((await self._do("size"))["size"])


class CachedSortedSet(View):
    kind = "sorted_set"

    async def add(self, scores: Mapping[Any, float] | Iterable[tuple[Any, float]]) -> int:
        """How many are new, or have another score than before."""
        pairs = scores.items() if isinstance(scores, Mapping) else scores
        scored = tuple(ScoredValue(raw_value(value, self._encoding), float(score)) for value, score in pairs)
        return int((await self._do("add_scored", scored_values=scored))["changed"])

    async def remove(self, *values: Any) -> int:
        return int((await self._do("remove", values=self._raw(values)))["changed"])

    async def top(self, limit: int = 10) -> list[tuple[Any, float]]:
        """The highest first."""
        return _pairs(await self._do("get_top", limit=limit))

    async def bottom(self, limit: int = 10) -> list[tuple[Any, float]]:
        return _pairs(await self._do("get_bottom", limit=limit))

    async def range(
        self, min_score: float | None = None, max_score: float | None = None, limit: int = 100
    ) -> list[tuple[Any, float]]:
        """Both bounds belong to it; the lowest first."""
        spec = RangeSpec(min_score=min_score, max_score=max_score)
        return _pairs(await self._do("get_range", range_spec=spec, limit=limit))

    async def score(self, value: Any) -> float | None:
        found: float | None = (await self._do("get_score", values=self._raw([value])))["scores"][0]
        return found

    async def size(self) -> int:
        return int((await self._do("size"))["size"])


def _pairs(result: Any) -> list[tuple[Any, float]]:
    return [(each["value"], each["score"]) for each in result["scored_values"]]

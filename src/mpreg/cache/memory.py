"""L1: what a node holds in memory, by the policy and within the bounds of its namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from mpreg.cache.bounds import Bounds, OnOut, Policy
from mpreg.cache.cost import CostBased
from mpreg.cache.entry import Entry
from mpreg.cache.key import namespace_of
from mpreg.cache.s4lru import S4Lru
from mpreg.cache.tier import Memory, OnEvicted
from mpreg.cache.tinylfu import WTinyLfu

PolicyName = Literal["s4lru", "cost", "w-tinylfu"]
"""`s4lru` for most; `cost` where some values take far longer to compute than others; `w-tinylfu` where scans, or loops
that are larger than the room, would push everything out."""

POLICIES: Final[Mapping[PolicyName, Callable[[Bounds, OnOut], Policy]]] = {
    "s4lru": S4Lru,
    "cost": CostBased,
    "w-tinylfu": WTinyLfu,
}

MIB: Final = 1 << 20


class NamespaceMemory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: PolicyName = "s4lru"
    entries_max: Annotated[int, Meta(ge=0, le=100_000_000)] = 10_000
    bytes_max: Annotated[int, Meta(ge=0)] = 32 * MIB
    """Of encoded values. What Python needs for an entry, some 500 bytes and its key, comes on top. `s4lru` has four
    segments: it keeps no value that is larger than a quarter of this."""


class MemorySettings(NamespaceMemory, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For all namespaces together, but for those that have room of their own."""

    entries_max: Annotated[int, Meta(ge=0, le=100_000_000)] = 100_000
    bytes_max: Annotated[int, Meta(ge=0)] = 256 * MIB
    namespaces: dict[str, NamespaceMemory] = {}


def make_memory(settings: MemorySettings, on_evicted: OnEvicted) -> Memory:
    common = Level(settings, on_evicted)
    if not settings.namespaces:
        return common
    return Levels(common, {name: Level(own, on_evicted) for name, own in settings.namespaces.items()})


class Level:
    """One policy; a value whose time is over goes when it is asked for, or when its turn comes."""

    __slots__ = ("_on_evicted", "_policy", "clear", "keys", "peek", "remove")

    def __init__(self, settings: NamespaceMemory, on_evicted: OnEvicted) -> None:
        self._on_evicted = on_evicted
        policy = POLICIES[settings.policy](Bounds(settings.entries_max, settings.bytes_max), self._out)
        self._policy = policy
        self.peek = policy.peek
        self.remove = policy.remove
        self.keys = policy.keys
        self.clear = policy.clear

    def get(self, key: bytes, now_ms: int) -> Entry | None:
        entry = self._policy.get(key, now_ms)
        if entry is not None and entry.expires_ms and now_ms >= entry.expires_ms:
            self._policy.remove(key)
            self._on_evicted(key, "expired")
            return None
        return entry

    def put(self, key: bytes, entry: Entry) -> None:
        if not self._policy.put(key, entry):
            self._on_evicted(key, "too_large")

    def renew(self, key: bytes, entry: Entry) -> bool:
        if self._policy.peek(key) is None:
            return False
        if self._policy.renew(key, entry):
            return True
        self._policy.remove(key)
        self._on_evicted(key, "too_large")
        return False

    def __len__(self) -> int:
        return len(self._policy)

    @property
    def size_bytes(self) -> int:
        return self._policy.size_bytes

    def _out(self, key: bytes) -> None:
        self._on_evicted(key, "capacity")


class Levels:
    """Some namespaces have a level of their own."""

    __slots__ = ("_common", "_own")

    def __init__(self, common: Level, own: Mapping[str, Level]) -> None:
        self._common = common
        self._own = own

    def get(self, key: bytes, now_ms: int) -> Entry | None:
        return self._of(key).get(key, now_ms)

    def peek(self, key: bytes) -> Entry | None:
        return self._of(key).peek(key)

    def put(self, key: bytes, entry: Entry) -> None:
        self._of(key).put(key, entry)

    def renew(self, key: bytes, entry: Entry) -> bool:
        return self._of(key).renew(key, entry)

    def remove(self, key: bytes) -> bool:
        return self._of(key).remove(key)

    def keys(self) -> Iterator[bytes]:
        return chain.from_iterable([list(level.keys()) for level in self._all()])

    def clear(self) -> None:
        for level in self._all():
            level.clear()

    def __len__(self) -> int:
        return sum(map(len, self._all()))

    @property
    def size_bytes(self) -> int:
        return sum(level.size_bytes for level in self._all())

    def _of(self, key: bytes) -> Level:
        return self._own.get(namespace_of(key), self._common)

    def _all(self) -> list[Level]:
        return [self._common, *self._own.values()]

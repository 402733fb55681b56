"""The state that the nodes of a cluster share: key -> (value, version, source node). The higher version wins, a tie is
decided by the id of the source node, then by the value, so that all nodes end up with the same, whatever the order in
which they hear of it (R-G3). A withdrawn key leaves a tombstone, so that an old value can't come back.

Keys that belong to a node (`owned`) are shown only while it lives, and after it has started again only once it has said
so itself. Everything is bounded: what has no room is refused and counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec
from msgspec import Raw

from mpreg.cluster.digests import Digest, item_hash, part_of
from mpreg.cluster.owned import owner_of
from mpreg.wire.gossip import StateUpdate

KEY_BYTES_MAX: Final = 512
VALUE_BYTES_MAX: Final = 65_536
"""Of one value, as MessagePack."""
KEYS_OF_NODE_MAX: Final = 4096
KEYS_MAX: Final = 65_536
STATE_BYTES_MAX: Final = 64_000_000
VERSION_MAX: Final = 2**53 - 1

_NIL: Final = Raw(b"\xc0")
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder().decode


class Entry(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: Raw
    version: int
    source: str
    removed: bool
    at: float
    """Seconds since 1970."""
    ttl_s: float | None

    @property
    def rank(self) -> tuple[int, str, bool, bytes]:
        return (self.version, self.source, self.removed, bytes(self.value))

    @property
    def hash(self) -> int:
        return item_hash("key", self.key, self.version, self.source, self.removed, bytes(self.value))

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value)


def encode_value(value: object) -> Raw:
    """Raises `TypeError`, `ValueError`, `OverflowError` or `RecursionError` for what has no encoding."""
    return Raw(_encode(value))


def from_update(update: StateUpdate) -> Entry:
    value = _NIL if update.removed else encode_value(update.value)
    return Entry(update.key, value, update.version, update.source_node, update.removed, update.timestamp, update.ttl)


def to_update(entry: Entry) -> StateUpdate:
    return StateUpdate(
        key=entry.key,
        value=None if entry.removed else _decode(entry.value),
        version=entry.version,
        timestamp=entry.at,
        source_node=entry.source,
        ttl=entry.ttl_s,
        removed=entry.removed,
    )


class SharedState:
    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._entries: dict[str, Entry] = {}
        self._hashes: dict[str, int] = {}
        self._keys_of: dict[str, set[str]] = {}
        self._counted: set[str] = set()
        """Owners whose keys are part of the digest: the living."""
        self._unconfirmed: set[str] = set()
        """Keys of a node that has started again and has not said since what they are."""
        self.tombstones: dict[str, None] = {}
        self.expiring: dict[str, None] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def version_of(self, key: str) -> int:
        entry = self._entries.get(key)
        return entry.version if entry is not None else 0

    def counts_for_more(self, entry: Entry) -> bool:
        known = self._entries.get(entry.key)
        return known is None or (
            entry.version >= known.version and (entry.version > known.version or entry.rank > known.rank)
        )

    def has_room(self, entry: Entry) -> bool:
        known = self._entries.get(entry.key)
        if self.bytes + entry.size - (known.size if known else 0) > STATE_BYTES_MAX:
            return False
        if known is not None:
            return True
        owner = owner_of(entry.key)
        of_owner = len(self._keys_of.get(owner, ())) if owner is not None else 0
        return len(self._entries) < KEYS_MAX and of_owner < KEYS_OF_NODE_MAX

    def set(self, entry: Entry) -> None:
        key = entry.key
        self._drop(key)
        self._entries[key] = entry
        self.bytes += entry.size
        self._unconfirmed.discard(key)
        owner = owner_of(key)
        if owner is not None:
            self._keys_of.setdefault(owner, set()).add(key)
        if entry.removed:
            self.tombstones[key] = None
            return
        if entry.ttl_s is not None:
            self.expiring[key] = None
        value = self._hashes[key] = entry.hash
        if owner is None or owner in self._counted:
            self._digest.add(_part(key, owner), value)

    def forget(self, key: str) -> None:
        self._drop(key)
        owner = owner_of(key)
        keys = self._keys_of.get(owner) if owner is not None else None
        if owner is not None and keys is not None:
            keys.discard(key)
            if not keys:
                del self._keys_of[owner]

    def is_shown(self, entry: Entry) -> bool:
        owner = owner_of(entry.key)
        return not entry.removed and (owner is None or (owner in self._counted and entry.key not in self._unconfirmed))

    def of_owner(self, owner: str) -> list[Entry]:
        return [self._entries[key] for key in sorted(self._keys_of.get(owner, ()))]

    def shown_of(self, owner: str) -> list[Entry]:
        return [entry for entry in self.of_owner(owner) if self.is_shown(entry)]

    def count_owner(self, owner: str) -> None:
        """The owner lives: its keys are part of the digest, and shown."""
        if owner in self._counted:
            return
        self._counted.add(owner)
        for key in self._keys_of.get(owner, ()):
            if key in self._hashes:
                self._digest.add(_part(key, owner), self._hashes[key])

    def discount_owner(self, owner: str) -> None:
        if owner not in self._counted:
            return
        self._counted.discard(owner)
        for key in self._keys_of.get(owner, ()):
            if key in self._hashes:
                self._digest.remove(_part(key, owner), self._hashes[key])

    def doubt_owner(self, owner: str) -> None:
        """The owner has started again: what its last run said is not shown until it says it again."""
        self._unconfirmed.update(self._keys_of.get(owner, ()))

    def forget_owner(self, owner: str) -> None:
        self.discount_owner(owner)
        for key in list(self._keys_of.get(owner, ())):
            self.forget(key)

    def in_parts(self, parts: Collection[int]) -> list[tuple[int, Entry]]:
        """The entries that these parts of the digest are made of, each with its part."""
        found = []
        for key in self._hashes:
            owner = owner_of(key)
            part = _part(key, owner)
            if part in parts and (owner is None or owner in self._counted):
                found.append((part, self._entries[key]))
        return found

    def hash_of(self, key: str) -> int:
        return self._hashes[key]

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.bytes -= entry.size
        self.tombstones.pop(key, None)
        self.expiring.pop(key, None)
        self._unconfirmed.discard(key)
        value = self._hashes.pop(key, None)
        owner = owner_of(key)
        if value is not None and (owner is None or owner in self._counted):
            self._digest.remove(_part(key, owner), value)


def _part(key: str, owner: str | None) -> int:
    """The keys of a node are in the same part as the node itself, as they come and go with it."""
    return part_of(key if owner is None else owner)

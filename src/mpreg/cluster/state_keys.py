"""The shared state as this node changes it and hears of its changes (R-G3)."""

from __future__ import annotations

import math
from typing import Final

import msgspec
from msgspec import Raw

from mpreg.cluster.core import Core
from mpreg.cluster.effects import StateChanged
from mpreg.cluster.intake import Reason, is_node_id
from mpreg.cluster.owned import owner_of
from mpreg.cluster.shared_state import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    VERSION_MAX,
    Entry,
    encode_value,
    from_update,
    to_update,
)
from mpreg.errors import ClusterError
from mpreg.wire.gossip import StateUpdate

CONFIG_PREFIX: Final = "config."
"""Keys of the cluster's configuration; their updates travel as `config_update`."""


class StateKeys:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._own: set[str] = set()
        """Keys of this node that this run has put and not withdrawn."""

    def check(self, key: str, value: object) -> Raw:
        """The value as MessagePack, if this node may set the key to it."""
        self._check_key(key)
        try:
            encoded = encode_value(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise ClusterError("CLUSTER_INVALID_VALUE", f"The value can't be encoded: {problem}", key=key) from None
        if len(encoded) > VALUE_BYTES_MAX:
            raise ClusterError(
                "CLUSTER_INVALID_VALUE",
                f"The value of {key!r} takes {len(encoded)} bytes; the limit is {VALUE_BYTES_MAX}",
                key=key,
                limit="value_bytes_max",
                value_bytes_max=VALUE_BYTES_MAX,
            )
        return encoded

    def put(self, key: str, value: object, ttl_s: float | None) -> None:
        core = self._core
        encoded = self.check(key, value)
        if ttl_s is not None and not 0 < ttl_s < math.inf:
            raise ClusterError("CLUSTER_INVALID_VALUE", f"ttl_s must be above 0, not {ttl_s}", field="ttl_s")
        known = core.state.get(key)
        if known is not None and not known.removed and known.value == encoded and known.ttl_s is None is ttl_s:
            self._own.add(key)
            return  # it is that already
        entry = self._next(key, encoded, False, ttl_s)
        if not core.state.has_room(entry):
            raise ClusterError("CLUSTER_STATE_FULL", f"The shared state has no room for {key!r}", key=key)
        self._own.add(key)
        self._set(entry)

    def withdraw(self, key: str) -> None:
        self._check_key(key)
        self._own.discard(key)
        known = self._core.state.get(key)
        if known is not None and not known.removed:
            self._set(self._next(key, encode_value(None), True, None))

    def hear(self, update: StateUpdate, from_node: str) -> None:
        core = self._core
        fault = self._fault_of(update)
        if fault is not None:
            core.intake.drop(fault)
            return
        entry = from_update(update)
        if not core.state.counts_for_more(entry):
            return
        if self._is_over(entry):
            if not core.state.get(entry.key):
                return
            entry = _tombstone(entry, entry.at)
        if not core.state.has_room(entry):
            core.intake.drop("full")
            return
        if owner_of(entry.key) == core.me.node_id:
            self._contradict(entry)
        else:
            self._set(entry)

    def expire(self) -> None:
        """Keys whose time is over become tombstones of the same version, on every node by itself; tombstones go when
        nobody can bring the old value back any more."""
        core = self._core
        for key in list(core.state.expiring):
            entry = core.state.get(key)
            if entry is not None and self._is_over(entry):
                self._show(_tombstone(entry, core.wall))
        for key in list(core.state.tombstones):
            entry = core.state.get(key)
            if entry is not None and entry.at < core.wall - core.settings.tombstone_s:
                core.state.forget(key)

    def forget_tombstones(self, seen_before: float) -> None:
        """Everyone has seen those that are older."""
        core = self._core
        for key in list(core.state.tombstones):
            entry = core.state.get(key)
            if entry is not None and entry.at < seen_before:
                core.state.forget(key)

    def _next(self, key: str, value: Raw, removed: bool, ttl_s: float | None) -> Entry:
        core = self._core
        core.clock.tick()
        version = core.state.version_of(key) + 1
        return Entry(key, value, version, core.me.node_id, removed, core.wall, ttl_s)

    def _set(self, entry: Entry) -> None:
        self._show(entry)
        self._core.broadcasts.add(to_update(entry))

    def _show(self, entry: Entry) -> None:
        core = self._core
        before = core.state.get(entry.key)
        was_shown = before is not None and core.state.is_shown(before)
        core.state.set(entry)
        if core.state.is_shown(entry):
            core.effect(StateChanged(entry.key, entry.value, entry.source, entry.version))
        elif was_shown:
            core.effect(StateChanged(entry.key, None, entry.source, entry.version))

    def _contradict(self, entry: Entry) -> None:
        """Someone has a newer version of this node's own key: from a former run. What this run says takes its place."""
        core = self._core
        mine = core.state.get(entry.key)
        value, removed, ttl_s = encode_value(None), True, None
        if mine is not None and entry.key in self._own:
            value, removed, ttl_s = mine.value, mine.removed, mine.ttl_s
        elif entry.removed:
            self._show(entry)
            return
        version = min(max(entry.version, core.state.version_of(entry.key)) + 1, VERSION_MAX)
        core.clock.tick()
        self._set(Entry(entry.key, value, version, core.me.node_id, removed, core.wall, ttl_s))

    def _is_over(self, entry: Entry) -> bool:
        return entry.ttl_s is not None and not entry.removed and self._core.wall >= entry.at + entry.ttl_s

    def _check_key(self, key: str) -> None:
        owner = owner_of(key)
        if not key or len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
            raise ClusterError(
                "CLUSTER_INVALID_KEY",
                f"A key of the shared state has 1 to {KEY_BYTES_MAX} bytes",
                field="key",
                limit="key_bytes_max",
                key_bytes_max=KEY_BYTES_MAX,
            )
        if owner is not None and owner != self._core.me.node_id:
            raise ClusterError("CLUSTER_INVALID_KEY", f"{key[:64]!r} belongs to node {owner[:64]!r}", field="key")

    def _fault_of(self, update: StateUpdate) -> Reason | None:
        owner = owner_of(update.key)
        if not update.key or len(update.key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
            return "key"
        if not 0 < update.version <= VERSION_MAX or not math.isfinite(update.timestamp):
            return "key"
        if update.ttl is not None and not 0 <= update.ttl < math.inf:
            return "key"
        if not is_node_id(update.source_node) or (owner is not None and owner != update.source_node):
            return "owner"
        if owner is not None and owner != self._core.me.node_id and owner not in self._core.members:
            return "owner"
        try:
            return "too_large" if len(encode_value(update.value)) > VALUE_BYTES_MAX else None
        except (TypeError, ValueError, OverflowError, RecursionError):
            return "key"


def _tombstone(entry: Entry, at: float) -> Entry:
    return msgspec.structs.replace(entry, value=encode_value(None), removed=True, at=at, ttl_s=None)

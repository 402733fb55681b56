"""What can be set of a node's cache."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mpreg.cache.memory import MemorySettings


class CacheSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    memory: MemorySettings = MemorySettings()
    """L1: policy and bounds, for all namespaces and for some of them."""
    disk_bytes_max: Annotated[int, Meta(ge=0, le=2**44)] = 0
    """L2: room on the node's own disk, under its data directory; 0: none."""
    disk_entries_max: Annotated[int, Meta(ge=1, le=100_000_000)] = 1_000_000
    value_bytes_max: Annotated[int, Meta(ge=1, le=64_000_000)] = 16_000_000
    """One value, encoded."""
    elements_max: Annotated[int, Meta(ge=1, le=100_000_000)] = 1_000_000
    """Of one structure."""
    answer_elements_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 100_000
    """Of a structure in one answer."""
    ttl_s_max: Annotated[float, Meta(gt=0)] = 10 * 366 * 86_400.0
    """What is meant to live longer has no TTL."""
    timeout_ms: Annotated[float, Meta(gt=0)] = 5_000.0
    """Of a request that does not say."""
    long_timeout_ms: Annotated[float, Meta(gt=0)] = 60_000.0
    """The same, for what goes through many keys."""
    revalidate_s: Annotated[float, Meta(gt=0)] = 30.0
    """A node asks the store whether what it holds is still current at least this often, should it have missed a
    message that says so."""
    requests_max: Annotated[int, Meta(ge=1)] = 20_000
    """Requests of all connections that wait for the store; past it they are refused."""
    watchers_max: Annotated[int, Meta(ge=1)] = 10_000
    """Connections that are told of changes."""
    usd_per_compute_hour: Annotated[float, Meta(ge=0)] = 0.0
    """What an hour of computing costs: for the savings that `cache-analytics` estimates."""
    invalidated_max: Annotated[int, Meta(ge=1)] = 1_000_000
    """Keys of one `invalidate` or `delete`, with all that depends on them."""

"""Messages of the cache. A value stays raw bytes, in the encoding of its message, until someone has to look into it.

What one operation needs of the many fields, and which ranges they may have, is checked in `mpreg.cache.requests`.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mpreg.wire.error import ErrorBody
from mpreg.wire.message import RoleMessage

Operation = Literal[
    "get",
    "put",
    "delete",
    "invalidate",
    "atomic",
    "structure",
    "namespace",
    "get_many",
    "renew_lease",
    "release_lease",
]
CacheLevel = Literal["L1", "L2", "L3", "L4"]
Consistency = Literal["eventual", "strong"]
Status = Literal["hit", "miss", "stored", "deleted", "invalidated", "conflict", "error"]
AtomicType = Literal[
    "test_and_set", "compare_and_swap", "increment", "decrement", "append", "prepend", "extend_ttl"
]  # fmt: skip
StructureType = Literal["set", "list", "map", "sorted_set"]
StructureVerb = Literal[
    "add", "remove", "contains", "size", "union", "intersection", "difference", "members",
    "append", "prepend", "pop_front", "pop_back", "get_range", "length", "insert",
    "set_field", "get_fields", "remove_fields", "increment_field", "keys", "values",
    "add_scored", "get_top", "get_bottom", "get_score",
]  # fmt: skip
NamespaceVerb = Literal["clear", "statistics", "list_keys", "backup", "restore"]
MergeStrategy = Literal["skip", "replace", "newer"]

GET_MANY_MAX: Final = 1_000
"""Keys of one `get_many`."""


class CacheRequestKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """R-C1: `tags` are an index, not identity."""

    namespace: str
    identifier: str
    version: str = "v1"
    tags: tuple[str, ...] = ()


class ReplicationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How far a value is to travel; it concerns other clusters."""

    strategy: str = "geographic"
    min_replicas: int = 1
    max_replicas: int = 1
    preferred_regions: tuple[str, ...] = ()
    consistency_model: Consistency = "eventual"
    conflict_resolution: str = "last_writer_wins"


class CacheMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a value beside itself, said with `put`."""

    computation_cost_ms: float = 0.0
    dependencies: tuple[str, ...] = ()
    ttl_seconds: float | UnsetType | None = UNSET
    stale_seconds: float | UnsetType = UNSET
    """After its TTL it may be served so long while someone computes it anew."""
    replication_policy: ReplicationPolicy | str | UnsetType = UNSET


class NotificationCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Of the new value: what is at `field_path` compares with all of `threshold`, `{"$lt": 10}`."""

    field_path: str
    threshold: dict[str, Any]


class CacheOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_metadata: bool = False
    consistency_level: Consistency = "eventual"
    timeout_ms: float | UnsetType = UNSET
    cache_levels: tuple[CacheLevel, ...] | UnsetType = UNSET
    replication_factor: int | UnsetType = UNSET
    """Copies within the cluster's store to wait for; the answer says how many there are."""
    cascade_dependencies: bool | UnsetType = UNSET
    """Whether what depends on it goes too, and what depends on that. `invalidate` does so unless told not to."""
    replication_propagate: bool = True
    reason: str | UnsetType = UNSET
    source_change: str | UnsetType = UNSET
    confirm: bool = False
    """Yes, a pattern that matches everything is meant."""
    notify_on_change: bool = False
    notification_topic: str | UnsetType = UNSET
    notification_payload: dict[str, Any] | UnsetType = UNSET
    notification_condition: NotificationCondition | UnsetType = UNSET
    lease_ms: float | UnsetType = UNSET
    """Of a `get`: on a miss, the sender will compute the value. Nobody else is told to for so long."""
    lease: str | UnsetType = UNSET
    """Of a `put`, `renew_lease` or `release_lease`: as the `get` answered."""


class AtomicConditions(msgspec.Struct, frozen=True, kw_only=True):
    if_not_exists: bool = False


class AtomicOperation(msgspec.Struct, frozen=True, kw_only=True):
    operation_type: AtomicType
    expected_value: Raw | UnsetType = UNSET
    new_value: Raw | UnsetType = UNSET
    ttl_seconds: float | UnsetType = UNSET
    conditions: AtomicConditions = AtomicConditions()
    create_if_missing: bool | UnsetType = UNSET
    increment_by: int | float | UnsetType = UNSET
    initial_value: int | float | UnsetType = UNSET


class StructureOptions(msgspec.Struct, frozen=True, kw_only=True):
    create_if_missing: bool = True
    return_size: bool = True
    other_sets: tuple[str, ...] = ()
    """`namespace:identifier` each."""


class RangeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`start` and `end` of a list, the end exclusive; the scores of a sorted set, both inclusive."""

    start: int | UnsetType = UNSET
    end: int | UnsetType | None = UNSET
    min_score: float | UnsetType | None = UNSET
    max_score: float | UnsetType | None = UNSET


class ScoredValue(msgspec.Struct, frozen=True):
    value: Raw
    score: float


class StructureOperation(msgspec.Struct, frozen=True, kw_only=True):
    structure_type: StructureType
    operation: StructureVerb
    values: tuple[Raw, ...] = ()
    options: StructureOptions = StructureOptions()
    index: int | UnsetType = UNSET
    range_spec: RangeSpec | UnsetType = UNSET
    field_updates: dict[str, Raw] | UnsetType = UNSET
    fields: tuple[str, ...] = ()
    scored_values: tuple[ScoredValue, ...] = ()
    limit: int | UnsetType = UNSET
    ttl_seconds: float | UnsetType = UNSET


class NamespaceOperation(msgspec.Struct, frozen=True, kw_only=True):
    operation_type: NamespaceVerb
    namespace: str
    pattern: str | UnsetType = UNSET
    """Of identifiers; `*` is any text."""
    conditions: dict[str, dict[str, Any]] | UnsetType = UNSET
    max_entries: int | UnsetType = UNSET
    dry_run: bool = False
    cursor: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    offset: int = 0
    include_detailed_breakdown: bool = False
    sample_size: int | UnsetType = UNSET
    backup_format: Literal["msgpack"] = "msgpack"
    compression: Literal["none", "gzip"] = "none"
    data: bytes | UnsetType = UNSET
    merge_strategy: MergeStrategy = "skip"


class CacheRequest(RoleMessage, frozen=True, tag="cache-request"):
    u: str
    operation: Operation
    key: CacheRequestKey | UnsetType = UNSET
    keys: tuple[CacheRequestKey, ...] | UnsetType = UNSET
    """Of `get_many`."""
    value: Raw | UnsetType = UNSET
    metadata: CacheMetadata | UnsetType = UNSET
    options: CacheOptions = CacheOptions()
    pattern: str | UnsetType = UNSET
    """Of `invalidate`, which takes one of `pattern`, `tag` and `dependency` (R-C9)."""
    tag: str | UnsetType = UNSET
    dependency: str | UnsetType = UNSET
    max_entries: int | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
    atomic_operation: AtomicOperation | UnsetType = UNSET
    structure_operation: StructureOperation | UnsetType = UNSET
    namespace_operation: NamespaceOperation | UnsetType = UNSET


class CacheEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Without `include_metadata` just the value."""

    value: Raw
    key: CacheRequestKey | UnsetType = UNSET
    version: int | UnsetType = UNSET
    """Of this value; each write gives the key a higher one."""
    creation_time: float | UnsetType = UNSET
    access_count: int | UnsetType = UNSET
    last_access_time: float | UnsetType = UNSET
    computation_cost_ms: float | UnsetType = UNSET
    size_bytes: int | UnsetType = UNSET
    dependencies: tuple[str, ...] | UnsetType = UNSET
    ttl_seconds: float | UnsetType | None = UNSET
    """As it was set; null: it does not end."""
    ttl_remaining: float | UnsetType | None = UNSET


class CachePerformance(msgspec.Struct, frozen=True, kw_only=True):
    lookup_time_ms: float
    network_hops: int
    cache_efficiency: float
    """Hits of all gets of this namespace here, so far."""


class CacheResponse(RoleMessage, frozen=True, tag="cache-response"):
    """R-C2, R-C10."""

    u: str
    status: Status
    cache_level: CacheLevel | UnsetType = UNSET
    entry: CacheEntry | UnsetType = UNSET
    entries: tuple[CacheEntry | None, ...] | UnsetType = UNSET
    """Of `get_many`, in the order of the keys; null for a miss."""
    result: Any = UNSET
    error: ErrorBody | UnsetType = UNSET
    performance: CachePerformance | UnsetType = UNSET
    lease: str | UnsetType = UNSET
    """With a miss, or with a value that is no longer fresh: the asker is the one to compute it."""
    stale: bool | UnsetType = UNSET
    """True: over its TTL, and served because someone computes it anew."""
    unverified: bool | UnsetType = UNSET
    """True: the store can't be asked, this is what the node holds."""
    replicas: int | UnsetType = UNSET
    """Copies in the store that have this write, if a number of them was asked for."""


class Period(msgspec.Struct, frozen=True, kw_only=True):
    start: float
    end: float
    duration_seconds: float | UnsetType = UNSET


class OperationCounts(msgspec.Struct, frozen=True, kw_only=True):
    get_requests: int = 0
    put_requests: int = 0
    delete_requests: int = 0
    invalidate_requests: int = 0
    atomic_requests: int = 0
    structure_requests: int = 0
    namespace_requests: int = 0


class LevelPerformance(msgspec.Struct, frozen=True, kw_only=True):
    hit_ratio_l1: float = 0.0
    hit_ratio_l2: float = 0.0
    hit_ratio_l3: float = 0.0
    miss_ratio: float = 0.0
    avg_lookup_time_ms: float = 0.0
    cache_efficiency: float = 0.0


class CostSavings(msgspec.Struct, frozen=True, kw_only=True):
    computation_time_saved_ms: float = 0.0
    network_requests_avoided: int = 0
    estimated_cost_savings_usd: float = 0.0


class CacheStatistics(msgspec.Struct, frozen=True, kw_only=True):
    operations: OperationCounts = OperationCounts()
    performance: LevelPerformance = LevelPerformance()
    cost_savings: CostSavings = CostSavings()
    evictions: dict[str, int] = {}
    """By reason, of the levels that the node holds itself."""


class CacheAnalytics(RoleMessage, frozen=True, tag="cache-analytics"):
    """Asked without `statistics`, of a namespace or of all, over a period of whole minutes; answered with them."""

    u: str
    namespace: str | UnsetType = UNSET
    period: Period | UnsetType = UNSET
    statistics: CacheStatistics | UnsetType = UNSET


class CacheWatch(RoleMessage, frozen=True, tag="cache-watch"):
    """From now on tell this connection which keys of these namespaces change (`cache-changed`); none: nothing more.
    Answered with a `cache-response`."""

    u: str
    namespaces: tuple[str, ...]


class CacheChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    operation: Literal["put", "delete", "invalidate"]
    namespace: str
    identifier: str = ""
    """Empty: any of the namespace may have changed."""
    key_version: str = "v1"
    version: int = 0
    """What is older is out of date."""


class CacheChanged(RoleMessage, frozen=True, tag="cache-changed"):
    """To a connection that watches. `lost`: some may be missing, so nothing held is sure any more."""

    changes: tuple[CacheChange, ...]
    lost: bool = False


MESSAGES: tuple[type[RoleMessage], ...] = (CacheRequest, CacheResponse, CacheAnalytics, CacheWatch, CacheChanged)

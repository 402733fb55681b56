"""The keys of the cache in the store. Everything of one cached value is in one key, so one script changes it whole;
the indexes beside it only say where to look, and each look asks the value itself.
"""

from __future__ import annotations

from typing import Final

from mpreg.keyspace import Keyspace, Ttl, raw

CACHE: Final = Keyspace("cache", prefix="mpreg:cache:", about="Cached values and structures, and where to find them.")

_ANY: Final = Ttl(seconds=11 * 366 * 86_400.0, required=False)
"""What a value lives is said when it is written; at most ten years, and a little more where it is looked for."""

ENTRY: Final = CACHE.string(
    "e:{namespace}:{version}:{identifier:path}",
    raw,
    ttl=_ANY,
    name="entry",
    also=("set", "list", "hash", "zset"),
    about="A value with its version, lease and times (a string), or a structure: a set, list, hash or sorted set.",
)
TAG: Final = CACHE.zset(
    "tag:{tag:path}", raw, ttl=_ANY, name="tag", about="What may carry a tag, by when it ends; what it holds decides."
)
DEPENDANTS: Final = CACHE.zset(
    "dep:{dependency:path}", raw, ttl=_ANY, name="dep", about="What may depend on something, by when it ends; as above."
)
READY: Final = CACHE.channel(
    "ready:{key:path}", raw, name="ready", about="A value that was being computed is there, or will not come."
)
CHANGES: Final = CACHE.channel("changes", raw, name="changes", about="Which keys have changed, for the other nodes.")

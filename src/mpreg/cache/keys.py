"""The keys of the cache in the store. Everything of one cached value is in one key, so one script changes it whole;
the indexes beside it only say where to look, and each look asks the value itself.
"""

from __future__ import annotations

from typing import Final

from mpreg.keyspace import Keyspace, raw

CACHE: Final = Keyspace("cache", prefix="mpreg:cache:", about="Cached values and structures, and where to find them.")

ENTRY: Final = CACHE.string(
    "e:{namespace}:{version}:{identifier:path}",
    raw,
    name="entry",
    about="A value with its version, lease and times (a string), or a structure: a set, list, hash or sorted set.",
)
TAG: Final = CACHE.set("tag:{tag:path}", raw, name="tag", about="Keys of what may carry a tag; what they hold decides.")
DEPENDANTS: Final = CACHE.set(
    "dep:{dependency:path}", raw, name="dep", about="Keys of what may depend on something; what they hold decides."
)

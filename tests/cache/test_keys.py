"""What the cache keeps in the store is declared, so `mpreg keys` can explain every key of it."""

from __future__ import annotations

import time

import msgspec
import pytest

from mpreg.cache.clock import StoreClock
from mpreg.cache.key import CacheKey, key_bytes
from mpreg.cache.keys import CACHE
from mpreg.cache.levels import Levels
from mpreg.cache.settings import CacheSettings
from mpreg.cache.store_level import StoreLevel
from mpreg.cache.structures import Structures
from mpreg.keyspace import Catalog
from mpreg.keyspace.tools.lint import lint
from mpreg.keyspace.tools.walk import scope_of
from mpreg.store import Store
from mpreg.wire.cache import StructureOperation
from mpreg.wire.encoding import Encoding

pytestmark = pytest.mark.anyio


async def test_every_key_is_of_a_declared_family_and_type(store: Store) -> None:
    clock = StoreClock(time.monotonic)
    level = StoreLevel(store, clock)
    await level.read_clock()
    levels = Levels(level, clock)
    await levels.put(key_bytes(CacheKey("a", "b:c")), b"\x01", tags=("t:1",), dependencies=("in{put}",), ttl_ms=60_000)
    await levels.put(key_bytes(CacheKey("a", "gone")), b"\x01")
    await levels.delete(key_bytes(CacheKey("a", "gone")))
    await level.lease(key_bytes(CacheKey("a", "leased")), 60_000)
    asked = StructureOperation(structure_type="set", operation="add", values=(msgspec.Raw(b"\x01"),))
    await Structures(level, CacheSettings()).run(CacheKey("a", "set"), asked, Encoding.MSGPACK)
    catalog = Catalog([CACHE])
    async for report in lint(store, catalog, scope_of(catalog)):
        found = report
    assert found.scanned == 6
    assert found.findings == []

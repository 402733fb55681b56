"""Values by key: keys and entries, the store's level and what a node holds of it, exact operations, structures.

`service` is the cache as messages, `cache` the same for the node's own functions; `levels` walks memory, disk and
store; `store_level` and `lua/` are the exact part; `coherence` is what nodes tell each other.
"""

from mpreg.cache.cache import Cache
from mpreg.cache.changes_channel import ChangesChannel
from mpreg.cache.coherence import Update, to_wire
from mpreg.cache.service import CacheService
from mpreg.cache.settings import CacheSettings

__all__ = ["Cache", "CacheService", "CacheSettings", "ChangesChannel", "Update", "to_wire"]

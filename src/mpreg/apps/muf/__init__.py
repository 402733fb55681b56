"""MUF: requests and replies as plain Redis keys and keyspace events.

    async with await Unit.connect("FRONTEND", "valkey://127.0.0.1") as unit:
        answer = await unit.request(b"hello", timeout=5)

    unit = await Unit.connect("BACKEND", "valkey://127.0.0.1")

    @unit.on_request(group="WORKERS")
    async def work(request: Request) -> bytes:
        return request.raw.upper()

Everything is in the keys `MUF/<unit>/<status>/<id>`, so any Redis client is a full peer in both roles.
"""

from mpreg.apps.muf.codecs import Codec
from mpreg.apps.muf.errors import MufBusy, MufConnectionLost, MufIdInUse, MufRemoteError, MufTimeout
from mpreg.apps.muf.names import Name
from mpreg.apps.muf.offer import Offer
from mpreg.apps.muf.request import Request
from mpreg.apps.muf.statistics import Statistics
from mpreg.apps.muf.ttl import Ttls
from mpreg.apps.muf.unit import Unit

__all__ = [
    "Codec",
    "MufBusy",
    "MufConnectionLost",
    "MufIdInUse",
    "MufRemoteError",
    "MufTimeout",
    "Name",
    "Offer",
    "Request",
    "Statistics",
    "Ttls",
    "Unit",
]

"""Links that carry messages over WebSocket and TCP, plain and TLS: listen, dial, pool, breaker."""

from mpreg.transport.backoff import Backoff
from mpreg.transport.breaker import Breaker, BreakerPolicy
from mpreg.transport.dialler import dial
from mpreg.transport.link import Link, LinkHandler
from mpreg.transport.listener import Accept, Listener, listen
from mpreg.transport.memory import memory_pair
from mpreg.transport.peer import Peer
from mpreg.transport.pool import Pool
from mpreg.transport.reconnecting import Itinerary, Reconnecting
from mpreg.transport.session import Session
from mpreg.transport.tls import TlsFiles

__all__ = [
    "Accept",
    "Backoff",
    "Breaker",
    "BreakerPolicy",
    "Itinerary",
    "Link",
    "LinkHandler",
    "Listener",
    "Peer",
    "Pool",
    "Reconnecting",
    "Session",
    "TlsFiles",
    "dial",
    "listen",
    "memory_pair",
]

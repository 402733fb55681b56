"""What can be set of a client. The defaults fit a program that talks to one cluster."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mpreg.client.retry import RetryPolicy
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT, MB, Limits

Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    timeout_s: Seconds = 30.0
    """Of a call that names none; 30 s is also what a node assumes (R-R7)."""
    connect_timeout_s: Seconds = 10.0
    """Of one attempt to reach one address."""
    patience_s: Annotated[float, Meta(ge=0)] = 0.0
    """How long `connect` keeps trying before it fails; 0 tries every address once."""
    in_flight_max: int = 8_000
    """Calls on one connection; a node allows 8,192. The next one waits."""
    waiting_max: int = 100_000
    """Calls that wait, for a connection or for room on it; past it a call is refused with `RESOURCE_EXHAUSTED`."""
    waiting_bytes_max: int = 100 * MB
    """Bytes of the calls that wait."""
    discover_s: Annotated[float, Meta(ge=0, le=3600)] = 1.0
    """So long after it has connected, a client asks where the other nodes of the cluster are, and fails over to them
    when its own are gone; 0: it does not."""
    retry: RetryPolicy | None = None
    """Whether calls are tried again when they fail; if not said, they are not."""
    encoding: Encoding = Encoding.MSGPACK
    """What the client speaks. JSON is for reading along."""
    limits: Limits = CLIENT

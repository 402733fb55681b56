"""The keys of MUF, declared, so that `mpreg keys --schema mpreg.apps.muf.keys` knows them."""

from __future__ import annotations

from mpreg.apps.muf.ttl import TTL_S_MAX, Ttls
from mpreg.keyspace import Keyspace, Ttl, raw

MUF = Keyspace("muf", separator="/", about="Requests and replies between units, as plain keys.")

_DEFAULT = Ttls()


def _ttl(seconds: float, *, required: bool = True) -> Ttl:
    """Any call may say another TTL than the default; only state may live for ever."""
    return Ttl(seconds=seconds, max_seconds=float(TTL_S_MAX), required=required)


REQ = MUF.string(
    "MUF/{unit:word}/REQ/{id:word}", raw, name="req", ttl=_ttl(_DEFAULT.req), about="A unit asks; who can answer does."
)
RES = MUF.string(
    "MUF/{unit:word}/RES/{id:word}", raw, name="res", ttl=_ttl(_DEFAULT.res), about="The answer to the unit's request."
)
ERR = MUF.string(
    "MUF/{unit:word}/ERR/{id:word}", raw, name="err", ttl=_ttl(_DEFAULT.res), about="Why the request has no answer."
)
KEEP = MUF.string(
    "MUF/{unit:word}/KEEP/{id:word}",
    raw,
    name="keep",
    ttl=_ttl(_DEFAULT.keep or 0, required=False),
    protection="state",
    about="State of the unit: what it keeps, `alive`, `claim.<unit>.<id>` of a group, `progress.<unit>.<id>`.",
)

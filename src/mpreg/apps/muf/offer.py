"""What a backend says of itself: which requests it takes, and how many at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from mpreg.apps.muf import names, ttl
from mpreg.apps.muf.claims import LEASE_S, Policy
from mpreg.apps.muf.names import Name

CONCURRENCY_MAX: Final = 100_000


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests a backend takes, and how (R-M6, R-M7)."""

    issuers: Collection[str] | None = None
    """The units that it serves; None for all but its own."""
    target: str | None = None
    """It serves ids that begin with `<target>.`, and no others."""
    when: Callable[[Name], bool] | None = None
    """Any other condition on a request's name."""
    group: str | None = None
    claim: Policy | None = None
    """`once` by default for a backend that names a group, `off` for one that does not."""
    concurrency: int = 16
    """Requests at a time; of a sync function, that many threads."""
    lease_s: float = LEASE_S

    def __post_init__(self) -> None:
        if isinstance(self.issuers, str):
            raise ValueError("issuers: a list of units, not one string")
        for unit in self.issuers or ():
            names.check("issuer", unit)
        if self.target is not None:
            names.check("target", self.target)
        if self.group is not None:
            names.check("group", self.group)
        if self.claim not in (None, "off", "once", "lease"):
            raise ValueError(f"claim: one of off, once, lease, not {self.claim!r}")
        if self.claim in ("once", "lease") and self.group is None:
            raise ValueError("group: a claim belongs to a group, so name one")
        if not isinstance(self.concurrency, int) or isinstance(self.concurrency, bool):
            raise ValueError(f"concurrency: an int is expected, not {self.concurrency!r}")
        if not 1 <= self.concurrency <= CONCURRENCY_MAX:
            raise ValueError(f"concurrency: from 1 to {CONCURRENCY_MAX}, not {self.concurrency}")
        ttl.check(self.lease_s, "lease_s")

    @property
    def policy(self) -> Policy:
        return self.claim or ("once" if self.group is not None else "off")

    def wants(self, request: Name, own: str) -> bool:
        return (
            request.status == "REQ"
            and request.unit != own
            and (self.issuers is None or request.unit in self.issuers)
            and (self.target is None or request.id.startswith(self.target + "."))
            and (self.when is None or self.when(request))
        )

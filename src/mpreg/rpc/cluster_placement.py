"""Where a command of a cluster runs (R-R4, R-R5): here while there is room, else with the less loaded of two random
providers; never with a node that leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from mpreg.errors import RpcError
from mpreg.rpc.execution import LocalFunction
from mpreg.rpc.offers import Offered, Offers
from mpreg.rpc.placement import LocalPlacement, Provider
from mpreg.rpc.registry import NAME_BYTES_MAX
from mpreg.rpc.remote import RemoteCalls, RemoteFunction
from mpreg.transport.session import Session

ONLY_MAX: Final = 10_000

Load = Callable[[Session], float]
"""How busy a node says that it is: functions that run there; infinite for one that is to get no new work."""


class ClusterPlacement:
    def __init__(
        self,
        local: LocalPlacement,
        calls: RemoteCalls,
        load: Load,
        has_room: Callable[[LocalFunction], bool],
        rng: random.Random | None = None,
    ) -> None:
        self.offers: Offers[Session] = Offers()
        self._only: dict[tuple[str, Sequence[str]], RemoteFunction] = {}
        """What one other node has and this one has not; of one version of both."""
        self._version = 0
        self._local = local
        self._calls = calls
        self._load = load
        self._has_room = has_room
        self._random = rng or random.Random(random.getrandbits(64))

    def place(self, fun: str, locs: Sequence[str]) -> Provider:
        version = self.offers.version + self._local.registry.version  # both only grow
        if version != self._version:
            self._version = version
            self._only.clear()
        only = self._only.get((fun, locs))
        return self._place(fun, locs) if only is None else only

    def _place(self, fun: str, locs: Sequence[str]) -> Provider:
        if not len(self.offers):
            return self._local.place(fun, locs)
        own = self._local.look(fun, locs)
        if own is not None and self._has_room(own):
            return own
        chosen = self._choose(fun, locs, ())
        if chosen is None or (own is not None and self._score(chosen.node) == float("inf")):
            if own is not None:
                return own
            raise self._not_found(fun, locs)
        remote = RemoteFunction(self._calls, chosen, self._choose)
        if own is None and len(self._only) < ONLY_MAX and len(self.offers.find(fun, tuple(locs))) == 1:
            self._only[fun, locs] = remote
        return remote

    def _choose(self, fun: str, locs: Sequence[str], tried: Sequence[Session]) -> Offered[Session] | None:
        """Of two random ones. One that leaves only if there is no other: its functions still run, maybe."""
        found = self.offers.find(fun, tuple(locs))
        if tried:
            found = [offered for offered in found if offered.node not in tried]
        if len(found) > 1:
            found = [offered for offered in found if self._load(offered.node) != float("inf")] or found
        if not found:
            return None
        if len(found) == 1:
            return found[0]
        one, other = self._random.sample(found, 2)
        return one if self._score(one.node) <= self._score(other.node) else other

    def _score(self, node: Session) -> float:
        """What it said last, or what this node alone has sent there since."""
        return max(self._load(node), float(self._calls.open_at(node)))

    def _not_found(self, fun: str, locs: Sequence[str]) -> RpcError:
        if not (self._local.has(fun) or self.offers.has(fun)):
            name = fun[:NAME_BYTES_MAX]
            return RpcError("RPC_FUNCTION_NOT_FOUND", f"No node of the cluster has a function {name!r}", function=name)
        wanted = sorted(set(locs))
        return RpcError(
            "RPC_RESOURCE_NOT_FOUND",
            f"No function {fun!r} of the cluster has the resources {wanted}",
            function=fun,
            locs=wanted,
        )

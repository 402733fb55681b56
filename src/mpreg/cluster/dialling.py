"""Links that should be there: asked for at once, then ever more rarely."""

from __future__ import annotations

from mpreg.cluster.core import Core
from mpreg.cluster.effects import Dial
from mpreg.cluster.membership import Membership
from mpreg.cluster.record import LEFT, to_update


class Dialling:
    def __init__(self, core: Core, membership: Membership) -> None:
        self._core = core
        self._membership = membership
        self._attempts: dict[str, int] = {}

    def due(self, node_id: str) -> None:
        core = self._core
        known = core.members.get(node_id)
        if known is None or known.state == LEFT or (known.is_live and node_id in core.links):
            self.reset(node_id)
            return
        if node_id in core.links:  # a dead one with a link: perhaps it lives, and can say so when it hears of it
            core.send(node_id, "membership_update", to_update(known))
        else:
            core.effect(Dial(node_id, known.node.advertised_urls))
        attempts = self._attempts[node_id] = self._attempts.get(node_id, 0) + 1 if known.is_live else 64
        longest = core.settings.redial_max_s
        delay = min(longest, core.settings.redial_s * 2 ** min(attempts - 1, 16))
        core.timers.set(("dial", node_id), core.now + delay * (0.5 + core.random.random() / 2))

    def reset(self, node_id: str) -> None:
        self._attempts.pop(node_id, None)

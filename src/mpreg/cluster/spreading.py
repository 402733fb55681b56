"""Messages for every node, once: to each one that has a link at once, and through others to those that have none. Who
gets one passes it on to a few that are not known to have it; ids that were seen, hops and ttl end it."""

from __future__ import annotations

from mpreg.cluster.core import Core, passed_on
from mpreg.cluster.effects import Heard, Send
from mpreg.cluster.intake import SEEN_BY_MAX
from mpreg.errors import ClusterError
from mpreg.wire.gossip import CacheUpdate, Gossip, Rumor, encode_payload

RUMOR_BYTES_MAX = 65_536


class Spreading:
    def __init__(self, core: Core) -> None:
        self._core = core

    def start(self, payload: Rumor | CacheUpdate) -> None:
        core = self._core
        size = len(encode_payload(payload))
        if size > RUMOR_BYTES_MAX:
            raise ClusterError(
                "CLUSTER_INVALID_VALUE",
                f"A rumor takes at most {RUMOR_BYTES_MAX} bytes, not {size}",
                limit="rumor_bytes_max",
                rumor_bytes_max=RUMOR_BYTES_MAX,
            )
        targets = list(core.reach)
        message = core.seal(
            "rumor" if isinstance(payload, Rumor) else "cache_update",
            payload,
            passed_on=True,
            seen_by=(core.me.node_id, *targets)[:SEEN_BY_MAX],
        )
        for node_id in targets:
            core.effect(Send(node_id, message))

    def heard(self, message: Gossip) -> None:
        core = self._core
        core.effect(Heard(message))
        if message.ttl <= 0 or message.hop_count >= message.max_hops:
            return
        me = core.me.node_id
        seen = {*message.seen_by, *message.propagation_path, me}
        targets = core.reach.draw(core.random, core.settings.gossip_nodes, seen)
        if targets:
            seen_by = tuple(dict.fromkeys((*message.seen_by, me, *targets)))[:SEEN_BY_MAX]
            further = passed_on(message, me, seen_by)
            for node_id in targets:
                core.effect(Send(node_id, further))

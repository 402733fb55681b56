"""Message ids that a publisher has used lately: what it sends again after a reconnect is published once.

Bounded twice: so many publishers, the one that has been silent longest is forgotten; so many ids of each, in two
generations, so that at least half of that many are known.
"""

from __future__ import annotations

from mpreg.pubsub.limits import PubSubLimits


class Repeats:
    def __init__(self, limits: PubSubLimits) -> None:
        self._publishers_max = limits.publishers_max
        self._half = max(1, limits.ids_per_publisher_max // 2)
        self._ids: dict[str, tuple[set[str], set[str]]] = {}  # the one heard of last comes last

    def __len__(self) -> int:
        return len(self._ids)

    def is_known(self, publisher: str, message_id: str) -> bool:
        ids = self._ids.get(publisher)
        return ids is not None and (message_id in ids[0] or message_id in ids[1])

    def add(self, publisher: str, message_id: str) -> None:
        known = self._ids.pop(publisher, None)
        young, old = (set(), set()) if known is None else known
        if len(young) >= self._half:
            young, old = set(), young
        young.add(message_id)
        self._ids[publisher] = (young, old)
        if len(self._ids) > self._publishers_max:
            del self._ids[next(iter(self._ids))]

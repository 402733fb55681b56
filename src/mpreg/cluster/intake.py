"""The first look at a message: what lies about itself, is out of date or came before is dropped and counted by its
reason; nothing else of the machine ever sees it (R-G3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal, get_args

import msgspec

from mpreg.cluster.record import INCARNATION_MAX
from mpreg.cluster.settings import ClusterSettings
from mpreg.cluster.vector_clock import is_valid as is_valid_clock
from mpreg.wire.gossip import Gossip, NodeInfo, Payload, checksum_of, decode_payload, digest_of

Reason = Literal[
    "not_linked",
    "sender",
    "hops",
    "ttl",
    "clock",
    "lifetime",
    "expired",
    "digest",
    "checksum",
    "duplicate",
    "too_large",
    "payload",
    "cluster",
    "node",
    "key",
    "owner",
    "full",
]
"""Why something was dropped. The last five are about one update in a message, not the whole of it."""
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

ID_LENGTH_MAX: Final = 256
NODE_ID_LENGTH_MAX: Final = 128
TTL_MAX: Final = 64
HOPS_MAX: Final = 16
SEEN_BY_MAX: Final = 128
PAYLOAD_BYTES_MAX: Final = 1_000_000
LIFETIME_MAX_S: Final = 86_400.0
URLS_MAX: Final = 16
URL_LENGTH_MAX: Final = 512
META_MAX: Final = 32
META_LENGTH_MAX: Final = 256
PASSED_ON: Final = frozenset({"rumor", "cache_update"})
"""What nodes pass on for others; everything else is between two nodes that have a link."""


class Intake:
    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._seen: dict[str, None] = {}
        self.dropped: dict[Reason, int] = dict.fromkeys(REASONS, 0)

    def drop(self, reason: Reason) -> None:
        self.dropped[reason] += 1

    def open(self, message: Gossip, from_node: str, wall: float) -> Payload | None:
        """The payload of a message that is in order; None if it was dropped."""
        reason = fault_of(message, from_node, wall, self._settings.clock_skew_max_s)
        if reason is None and message.message_id in self._seen:
            reason = "duplicate"
        if reason is not None:
            self.drop(reason)
            return None
        try:
            payload = decode_payload(message)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self.drop("payload")
            return None
        self._remember(message.message_id)
        return payload

    def _remember(self, message_id: str) -> None:
        """The oldest ids are forgotten first: a copy comes soon after its original, or its lifetime is over."""
        self._seen[message_id] = None
        if len(self._seen) > self._settings.seen_ids_max:
            del self._seen[next(iter(self._seen))]


def fault_of(message: Gossip, from_node: str, wall: float, skew_max_s: float) -> Reason | None:
    """What is wrong with the envelope, cheap tests first."""
    for check in _CHECKS:
        reason = check(message, from_node)
        if reason is not None:
            return reason
    if not 0 <= message.expires_at - message.created_at <= LIFETIME_MAX_S or message.created_at > wall + skew_max_s:
        return "lifetime"
    if wall > message.expires_at + skew_max_s:
        return "expired"
    if message.digest != digest_of(message.payload):
        return "digest"
    covered = (message.message_id, message.message_type, message.sender_id, message.sequence_number, message.digest)
    return "checksum" if message.checksum != checksum_of(*covered) else None


def _size(message: Gossip, from_node: str) -> Reason | None:
    too_large = len(message.message_id) > ID_LENGTH_MAX or len(message.payload) > PAYLOAD_BYTES_MAX
    return "too_large" if too_large or not message.message_id else None


def _hops(message: Gossip, from_node: str) -> Reason | None:
    if not 0 <= message.hop_count <= message.max_hops <= HOPS_MAX:
        return "hops"
    if message.hop_count and message.message_type not in PASSED_ON:
        return "hops"
    return "hops" if len(message.propagation_path) != message.hop_count + 1 else None


def _ttl(message: Gossip, from_node: str) -> Reason | None:
    return None if 0 <= message.ttl <= TTL_MAX else "ttl"


def _sender(message: Gossip, from_node: str) -> Reason | None:
    """The first of the path made it, the last one is who brings it, and nobody stands in it twice."""
    path = message.propagation_path
    if path[0] != message.sender_id or path[-1] != from_node or len(set(path)) != len(path):
        return "sender"
    return "sender" if len(message.seen_by) > SEEN_BY_MAX + HOPS_MAX else None


def _clock(message: Gossip, from_node: str) -> Reason | None:
    return None if is_valid_clock(message.vector_clock) and message.sequence_number >= 0 else "clock"


def _times(message: Gossip, from_node: str) -> Reason | None:
    return None if math.isfinite(message.created_at) and math.isfinite(message.expires_at) else "lifetime"


_CHECKS: Final[tuple[Callable[[Gossip, str], Reason | None], ...]] = (_size, _hops, _ttl, _sender, _clock, _times)


def fault_of_node(node: NodeInfo, cluster_id: str) -> Reason | None:
    """What is wrong with what is said of a node."""
    if node.cluster_id != cluster_id:
        return "cluster"
    if not is_node_id(node.node_id) or not 0 <= node.incarnation <= INCARNATION_MAX or not math.isfinite(node.started):
        return "node"
    if len(node.run_id) > ID_LENGTH_MAX or len(node.advertised_urls) > URLS_MAX or len(node.meta) > META_MAX:
        return "node"
    if any(len(url) > URL_LENGTH_MAX for url in node.advertised_urls):
        return "node"
    if any(len(name) > META_LENGTH_MAX or len(value) > META_LENGTH_MAX for name, value in node.meta.items()):
        return "node"
    return None


def is_node_id(node_id: str) -> bool:
    """A node id is part of keys (`node/<id>/…`), so it has no slash; it is printed, so it has no control characters."""
    return 0 < len(node_id) <= NODE_ID_LENGTH_MAX and "/" not in node_id and node_id.isprintable()

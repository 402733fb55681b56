"""Gossip between the nodes of a cluster: one envelope for eleven kinds of payload (R-G2).

What changes while a message is passed on (`ttl`, `hop_count`, `propagation_path`, `seen_by`) stands outside what
`digest` and `checksum` cover. Between nodes the encoding is MessagePack, and the digest is over the bytes of the
payload as they stand in the message. The structs take any number that a sender writes: what lies about itself is
dropped and counted by the cluster's intake, it is not an error of the connection.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mpreg.wire.message import RoleMessage

MessageType = Literal[
    "state_update",
    "membership_update",
    "config_update",
    "heartbeat",
    "anti_entropy",
    "rumor",
    "consensus_proposal",
    "consensus_vote",
    "membership_probe",
    "membership_ack",
    "cache_update",
]
EventType = Literal["join", "update", "suspect", "dead", "leave"]


class Gossip(RoleMessage, frozen=True, tag="gossip"):
    """`sender_id` is the node that made the message; who passed it on stands last in `propagation_path`."""

    message_id: str
    """Unique; the same one is taken once."""
    message_type: MessageType
    sender_id: str
    payload: Raw
    """By `message_type` the struct of that name: `MembershipProbe` for `membership_probe`. `config_update` is a
    `StateUpdate`."""
    vector_clock: dict[str, int]
    """Of the sender, as far as it concerns the message: its own entry, and those of the nodes whose state it tells."""
    sequence_number: int
    """Of the sender's messages; it grows."""
    ttl: int
    """How often the message may still be passed on, one less each time."""
    hop_count: int
    """How often it has been passed on."""
    max_hops: int
    digest: str
    """`sha256:` and the hash of the payload's bytes as they stand in the message, in hex."""
    checksum: str
    """`crc32:` and, in eight hex digits, that of `message_id`, `message_type`, `sender_id`, `sequence_number` and
    `digest`, with line feeds between."""
    created_at: float
    """Seconds since 1970, by the sender's clock."""
    expires_at: float
    propagation_path: tuple[str, ...]
    """The sender, then each node that passed the message on; the last one is who brings it."""
    seen_by: tuple[str, ...]
    """Nodes that surely have it."""
    u: str | UnsetType = UNSET
    """Of a probe, and of its acknowledgement."""


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who a node is. Only the node itself changes its info, and raises `incarnation` when it does."""

    node_id: str
    cluster_id: str
    run_id: str
    """Of the process: a node that starts again under its old name has a new one."""
    started: float
    """Seconds since 1970 at which the process started."""
    advertised_urls: tuple[str, ...] = ()
    incarnation: int = 0
    meta: dict[str, str] = {}


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a node is doing: what heartbeats and acknowledgements of probes carry."""

    load: float = 0.0
    """0 is idle, 1 is as much work as the node takes."""
    calls: int = 0
    """Functions that run now."""
    draining: bool = False
    """The node takes no new work."""
    awareness: int = 0
    """Lifeguard's local health: 0 is well; higher, and the node's own judgement of others is slower."""


class MembershipUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node is there, is suspected, is dead or has left."""

    event_type: EventType
    node: NodeInfo
    source_node: str
    """Who says so: of a suspicion, the node that suspects."""
    timestamp: float
    """When it was said first, in seconds since 1970."""


class StateUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key of the shared state, or of the cluster's configuration (`config.…`)."""

    key: str
    value: Any = None
    version: int
    timestamp: float
    source_node: str
    ttl: float | None = None
    """Seconds after `timestamp` at which the key goes away by itself."""
    removed: bool = False
    """A tombstone: the key was withdrawn at this version."""


class Updates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one message tells of members and state, also as a passenger of probes and acknowledgements."""

    members: tuple[MembershipUpdate, ...] = ()
    state: tuple[StateUpdate, ...] = ()


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sender lives, and how it is doing."""

    health: NodeHealth


class Rumor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Several updates at once; or anything else, under a name, for whoever on the node knows that name."""

    updates: Updates = Updates()
    name: str = ""
    data: Any = None


class MembershipProbe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Are you there? With a `target` that is not the receiver: ask it for me."""

    target: str
    run_id: str | None = None
    """Which run of the target is meant, if it matters."""
    updates: Updates = Updates()


class MembershipAck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a probe; it carries the probe's `u`. `reached` false: the receiver could not be asked in time, but
    the sender is well (Lifeguard's nack)."""

    target: str
    reached: bool = True
    health: NodeHealth = NodeHealth()
    updates: Updates = Updates()


class AntiEntropy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a comparison of two nodes' states. `digest`: are they the same? `buckets`: they are not, this is mine
    in parts. `items`: these are my versions in the parts that differ. `state`: what you lack, and what I `want`."""

    step: Literal["digest", "buckets", "items", "state"]
    digest: int = 0
    """Of all live members and keys."""
    buckets: tuple[int, ...] = ()
    """Digests of the parts, by number."""
    parts: tuple[int, ...] = ()
    """The numbers of the parts that `members` and `keys` tell of."""
    member_versions: dict[str, tuple[int, str]] = {}
    """node_id -> incarnation and run."""
    key_versions: dict[str, tuple[int, int]] = {}
    """key -> version and hash."""
    updates: Updates = Updates()
    want_members: tuple[str, ...] = ()
    want_keys: tuple[str, ...] = ()
    more: bool = False
    """There was more than one message takes: begin again when this one is merged."""


class ConsensusProposal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Shall `key` become `value`? Every member votes once for each version of a key."""

    proposal_id: str
    key: str
    value: Any = None
    base_version: int
    """The version that the value is to replace; 0 if there is none."""
    ended: bool = False
    """It was not accepted and will not be: votes for it bind nobody any more."""


class ConsensusVote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    proposal_id: str
    voter: str
    accept: bool
    reason: str = ""


class CacheUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cached entry has changed: what other nodes hold of it is out of date (R-C3)."""

    operation: str
    key: Any
    value_hash: str = ""
    metadata: dict[str, Any] = {}
    vector_clock: dict[str, int] = {}
    replication_sites: tuple[str, ...] = ()


Payload = (
    StateUpdate
    | MembershipUpdate
    | Heartbeat
    | AntiEntropy
    | Rumor
    | ConsensusProposal
    | ConsensusVote
    | MembershipProbe
    | MembershipAck
    | CacheUpdate
)

PAYLOADS: Final[Mapping[str, type[Payload]]] = {
    "state_update": StateUpdate,
    "membership_update": MembershipUpdate,
    "config_update": StateUpdate,
    "heartbeat": Heartbeat,
    "anti_entropy": AntiEntropy,
    "rumor": Rumor,
    "consensus_proposal": ConsensusProposal,
    "consensus_vote": ConsensusVote,
    "membership_probe": MembershipProbe,
    "membership_ack": MembershipAck,
    "cache_update": CacheUpdate,
}

_encode = msgspec.msgpack.Encoder().encode
_DECODERS: Final = {name: msgspec.msgpack.Decoder(payload).decode for name, payload in PAYLOADS.items()}


def encode_payload(payload: Payload) -> Raw:
    return Raw(_encode(payload))


def decode_payload(message: Gossip) -> Payload:
    """Raises `msgspec.DecodeError` (or `RecursionError`) for a payload that is not what its type says."""
    payload: Payload = _DECODERS[message.message_type](message.payload)
    return payload


def digest_of(payload: Raw | bytes) -> str:
    return "sha256:" + hashlib.sha256(payload).hexdigest()


def checksum_of(message_id: str, message_type: str, sender_id: str, sequence_number: int, digest: str) -> str:
    """Of what must not change on the way; `digest` stands for the payload."""
    covered = f"{message_id}\n{message_type}\n{sender_id}\n{sequence_number}\n{digest}"
    return f"crc32:{zlib.crc32(covered.encode('utf-8', 'surrogatepass')):08x}"


def in_messagepack(message: Gossip) -> Gossip:
    """A message that came in a JSON frame, as nodes hand it on: its payload in MessagePack, its sums over that. One
    whose sums are wrong, or whose payload is no JSON, stays as it is, so that the intake finds it out."""
    digest = digest_of(message.payload)
    covered = (message.message_id, message.message_type, message.sender_id, message.sequence_number)
    if message.digest != digest or message.checksum != checksum_of(*covered, digest):
        return message
    try:
        payload = Raw(_encode(msgspec.json.decode(message.payload)))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, OverflowError):
        return message
    digest = digest_of(payload)
    return msgspec.structs.replace(message, payload=payload, digest=digest, checksum=checksum_of(*covered, digest))

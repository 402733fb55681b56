"""Messages as the scripts take and give them: those that are alike and come together go as one parcel, what becomes of
messages that were handed out together is said together. Pure: from values to arguments, from replies to values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from mpreg.queues.message import is_alike, payloads_of, unpack, with_key
from mpreg.queues.records import (
    OUTCOMES,
    VERBS,
    Batch,
    Claimed,
    Held,
    Lease,
    Outcome,
    Packed,
    Peeked,
    Taker,
)

PARCEL_MAX: Final = 128
"""Messages that are stored as one. The store keeps all of it until the last one is acknowledged."""
PARCEL_BYTES_MAX: Final = 65_536
ID_LENGTH: Final = 10
"""Of an id within its queue; in a copy of a broadcast, `@` and the subscriber follow."""
CLAIMED_WORDS: Final = 7
PEEKED_WORDS: Final = 4


class Parcels(msgspec.Struct, frozen=True):
    """What one call of `send.lua` takes in."""

    args: list[bytes]
    many: list[int]
    """Messages in each."""
    digests: list[str]
    """Of those that are known again, in the order of their keys."""


def parcels_of(messages: Sequence[Packed]) -> Parcels:
    args: list[bytes] = []
    many: list[int] = []
    digests: list[str] = []
    for meta, digest, payloads in _alike(messages):
        if digest:
            digests.append(digest)
            meta = with_key(meta, len(digests))
        args += (meta, payloads_of(payloads))
        many.append(len(payloads))
    return Parcels(args, many, digests)


def _alike(messages: Sequence[Packed]) -> Iterator[tuple[bytes, str, list[bytes]]]:
    """Neighbours that may be stored as one; what has a digest is always alone."""
    meta, digest = b"", ""
    payloads: list[bytes] = []
    size = 0
    for each in messages:
        size += len(each.payload)
        if (
            payloads
            and not (digest or each.digest)
            and is_alike(meta, each.meta)
            and size <= PARCEL_BYTES_MAX
            and len(payloads) < PARCEL_MAX
        ):
            payloads.append(each.payload)
            continue
        if payloads:
            yield meta, digest, payloads
        meta, digest, payloads, size = each.meta, each.digest, [each.payload], len(each.payload)
    if payloads:
        yield meta, digest, payloads


def ids_from(prefix: str, id_: str, many: int) -> list[str]:
    """Of a parcel's messages, by the id of its first."""
    if many == 1:
        return [prefix + id_[:ID_LENGTH]]
    first = int(id_, 16)
    return [prefix + number.to_bytes(ID_LENGTH // 2, "big").hex() for number in range(first, first + many)]


def batch_from(reply: list[Any], takers: Sequence[Taker]) -> Batch:
    """What `claim.lua` says."""
    prefix = reply[2].decode()
    claimed = []
    for n in range(3, len(reply), CLAIMED_WORDS):
        taker, raw_id, deliveries, number, lease_until_ms, extend_until_ms, body = reply[n : n + CLAIMED_WORDS]
        first = raw_id.decode()
        messages = unpack(body)
        many = len(messages.payloads)
        ids = [first] if many == 1 else ids_from("", first, many)
        held = [
            Held(f"{id_}/{number + place}/{deliveries}/{place}", prefix + first, number, place, deliveries)
            for place, id_ in enumerate(ids)
        ]
        claimed.append(
            Claimed(
                taker,
                takers[taker].subscriber,
                [prefix + id_[:ID_LENGTH] for id_ in ids],
                held,
                deliveries,
                lease_until_ms,
                extend_until_ms,
                messages,
            )
        )
    return Batch(reply[0], reply[1], claimed)


def peeked_from(reply: list[Any], most: int) -> list[Peeked]:
    """What `peek.lua` says."""
    prefix = reply[1].decode()
    found: list[Peeked] = []
    for n in range(2, len(reply), PEEKED_WORDS):
        id_, deliveries, body, why = reply[n : n + PEEKED_WORDS]
        messages = unpack(body)
        reason = msgspec.json.decode(why) if why else None
        for place, message_id in enumerate(ids_from(prefix, id_.decode(), len(messages.payloads))):
            found.append(Peeked(message_id, deliveries, messages, place, reason))
    return found[:most]


class Asked(msgspec.Struct, frozen=True):
    """What is said of many leases, each delivery at once."""

    deliveries: list[tuple[Lease, list[int]]]
    """One of the leases of each, and the places of all of them."""
    where: list[list[int]]
    """For each of them, which of the leases that were asked about these are."""
    count: int


def asked_of(leases: Sequence[Lease]) -> Asked:
    found: dict[tuple[Any, ...], int] = {}
    deliveries: list[tuple[Lease, list[int]]] = []
    where: list[list[int]] = []
    for n, lease in enumerate(leases):
        held = lease.held
        key = (held.first, held.number, lease.holder, lease.verb, lease.delay_ms, lease.reason)
        at = found.setdefault(key, len(deliveries))
        if at == len(deliveries):
            deliveries.append((lease, [held.place]))
            where.append([n])
        else:
            deliveries[at][1].append(held.place)
            where[at].append(n)
    return Asked(deliveries, where, len(leases))


def settling_args(asked: Asked) -> list[Any]:
    """For `acknowledge.lua`."""
    args: list[Any] = []
    for lease, places in asked.deliveries:
        held = lease.held
        args += (
            held.first,
            held.number,
            lease.holder,
            VERBS[lease.verb],
            lease.delay_ms,
            lease.reason,
            _packed(places),
        )
    return args


def outcomes_from(asked: Asked, reply: list[bytes]) -> list[Outcome]:
    outcomes: list[Outcome] = ["stale"] * asked.count
    for where, letters in zip(asked.where, reply, strict=True):
        for n, letter in zip(where, letters, strict=True):
            outcomes[n] = OUTCOMES[letter]
    return outcomes


def extending_args(asked: Asked, by_ms: int) -> list[Any]:
    """For `extend.lua`."""
    args: list[Any] = []
    for lease, places in asked.deliveries:
        args += (lease.held.first, lease.held.number, lease.holder, by_ms, _packed(places))
    return args


def ends_from(asked: Asked, reply: list[list[int]]) -> list[int]:
    ends = [0] * asked.count
    for where, theirs in zip(asked.where, reply, strict=True):
        for n, end in zip(where, theirs, strict=True):
            ends[n] = end
    return ends


def _packed(places: list[int]) -> bytes:
    return struct.pack(f">{len(places)}H", *places)

"""Slots of a cluster: which one a key is in, and who serves which. Pure.

A key's slot is CRC16 (XMODEM) of it modulo 16384; of a key with `{…}` only of what is inside the first such pair, if
that is not empty. So keys that belong together carry the same tag.
"""

from __future__ import annotations

import functools
from binascii import crc_hqx
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

SLOTS = 16384


def slot_of(key: bytes) -> int:
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


@functools.lru_cache(maxsize=1024)
def tag_for_slot(slot: int) -> bytes:
    """A short text that lies in this slot, to be used as a hash tag."""
    return next(tag for tag in (b"%x" % n for n in count()) if slot_of(tag) == slot)


class Slots(msgspec.Struct, frozen=True):
    """Who serves which slots: an answer to CLUSTER SLOTS."""

    primaries: Mapping[tuple[str, int], tuple[range, ...]]

    def is_whole(self) -> bool:
        return sum(len(part) for parts in self.primaries.values() for part in parts) == SLOTS


def read_slots(reply: Sequence[Any], asked_host: str) -> Slots:
    """`asked_host` stands in where a server does not know the address that it is reached by."""
    found: dict[tuple[str, int], list[range]] = {}
    for first, last, primary, *_ in reply:
        host = primary[0].decode() if primary[0] else ""
        address = (host if host not in ("", "?") else asked_host, int(primary[1]))
        found.setdefault(address, []).append(range(first, last + 1))
    return Slots({address: tuple(parts) for address, parts in found.items()})


class Redirection(msgspec.Struct, frozen=True):
    slot: int
    address: tuple[str, int] | None
    """None if the server does not know it."""


def read_redirection(text: str, asked_host: str) -> Redirection:
    """`MOVED 3999 127.0.0.1:6381`, or ASK; a host that is left out is the one that answered."""
    _, slot, endpoint = text.split(" ")[:3]
    host, _, port = endpoint.rpartition(":")
    if host == "?":
        return Redirection(int(slot), None)
    return Redirection(int(slot), (host or asked_host, int(port)))


def read_own_line(nodes: str) -> tuple[frozenset[int], frozenset[int]]:
    """Of CLUSTER NODES what the server says of itself: the slots that it has, and those that it is importing."""
    fields = next((line.split() for line in nodes.splitlines() if "myself" in line), [])
    own: set[int] = set()
    importing: set[int] = set()
    if len(fields) < 8 or "master" not in fields[2]:
        return frozenset(), frozenset()
    for field in fields[8:]:
        if field.startswith("["):
            slot, arrow, _ = field.strip("[]").partition("-<-")
            if arrow:
                importing.add(int(slot))
        else:
            first, _, last = field.partition("-")
            own.update(range(int(first), int(last or first) + 1))
    return frozenset(own), frozenset(importing)

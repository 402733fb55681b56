"""The key space of MUF, `MUF/<unit>/<status>/<id>` (R-M1, R-M2): building names, and reading what others wrote.

Anyone with a Redis client writes below `MUF/`, and a glob such as `MUF/*/REQ/*` crosses slashes; so every key that
arrives is read again here, and one that does not fit is None.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import time
from typing import Final, Literal, NamedTuple

from mpreg.errors import KeyspaceError
from mpreg.keyspace.pattern import escape_glob, parse_pattern

Status = Literal["REQ", "RES", "ERR", "KEEP"]

NAME_BYTES_MAX: Final = 512
PATTERN: Final = parse_pattern("MUF/{unit:word}/{status:REQ|RES|ERR|KEEP}/{id:word}", separator="/")

_ID_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"
"""Without what people mix up when they read an id aloud."""
_ID_TAIL: Final = 10
_PAIRS: Final = tuple(a + b for a in _ID_ALPHABET for b in _ID_ALPHABET)
_random = random.Random()  # seeded by the system, in a child that was forked as well
os.register_at_fork(after_in_child=_random.seed)
ID_CHARS: Final = 14 + 1 + _ID_TAIL
"""Of an id that is made here, without its target."""


class Name(NamedTuple):
    """A key, taken apart."""

    unit: str
    status: Status
    id: str

    def with_status(self, status: Status) -> Name:
        return Name(self.unit, status, self.id)

    @property
    def key(self) -> bytes:
        return f"MUF/{self.unit}/{self.status}/{self.id}".encode()

    @property
    def keys(self) -> tuple[bytes, bytes, bytes]:
        """Of REQ, RES and ERR."""
        unit, id = self.unit.encode(), self.id.encode()
        return b"MUF/%b/REQ/%b" % (unit, id), b"MUF/%b/RES/%b" % (unit, id), b"MUF/%b/ERR/%b" % (unit, id)


def parse(key: bytes) -> Name | None:
    """The name that this key is, or None for a key that the protocol does not know."""
    if key.isascii() and len(key) <= NAME_BYTES_MAX and b" " not in key and (text := key.decode()).isprintable():
        match text.split("/"):  # nearly all keys are plain ASCII and need no closer look
            case ["MUF", unit, ("REQ" | "RES" | "ERR" | "KEEP") as status, id] if unit and id:
                return Name(unit, status, id)
        return None
    values = PATTERN.parse(key)
    return None if values is None else Name(**values)  # type: ignore[arg-type]  # the pattern says which types


def check(what: str, name: object) -> str:
    """A unit or an id as the grammar allows it; else a `ValueError` that says what is wrong."""
    if not isinstance(name, str):
        raise ValueError(f"{what}: a str is expected, not {type(name).__name__}")
    try:
        PATTERN.build({"unit": name, "status": "REQ", "id": "x"})
    except KeyspaceError as error:
        raise ValueError(f"{what}: {error.message.removeprefix('unit ')}") from None
    return name


def new_id(target: str | None = None) -> str:
    """`[<target>.]<time>-<short random>`, to be read by people (R-M7); different in every process and call."""
    number = _random.getrandbits(64)
    tail = ""
    for _ in range(_ID_TAIL // 2):
        number, pair = divmod(number, len(_PAIRS))
        tail += _PAIRS[pair]
    id = f"{_clock(int(time.time()))}-{tail}"
    return f"{target}.{id}" if target else id


@functools.lru_cache(maxsize=1)
def _clock(second: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(second))


def claim(group: str, request: Name) -> Name:
    """Where a group notes that one of its backends has this request (R-M6): a name that the note's grammar allows."""
    id = f"claim.{request.unit}.{request.id}"
    if len(id.encode()) > NAME_BYTES_MAX:
        id = "claim.sha256-" + hashlib.sha256(id.encode()).hexdigest()
    return Name(group, "KEEP", id)


def progress(unit: str, request: Name) -> Name:
    id = f"progress.{request.unit}.{request.id}"
    if len(id.encode()) > NAME_BYTES_MAX:
        id = "progress.sha256-" + hashlib.sha256(id.encode()).hexdigest()
    return Name(unit, "KEEP", id)


def glob(unit: str | None, status: Status, id: str | None = None) -> bytes:
    """The pattern of these keys; None stands for any. Glob characters of the names themselves are escaped."""
    of_unit = b"*" if unit is None else escape_glob(unit.encode())
    of_id = b"*" if id is None else escape_glob(id.encode())
    return b"MUF/" + of_unit + b"/" + status.encode() + b"/" + of_id


def ascii_of(name: str) -> str:
    """A name as a server can list it among its clients."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)[:64]

"""SRV records of DNS: the question and the answer as bytes (pure), and one question to the system's name servers.

The standard library resolves names to addresses only; a cluster whose nodes move needs their ports, too.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from mpreg.errors import TransportError

TYPE_SRV: Final = 33
CLASS_IN: Final = 1
RECURSION_DESIRED: Final = 0x0100
TIMEOUT_S: Final = 2.0
RECORDS_MAX: Final = 256
POINTERS_MAX: Final = 64
_HEADER: Final = Struct(">HHHHHH")
_RECORD: Final = Struct(">HHIH")
_SRV: Final = Struct(">HHH")


class Srv(NamedTuple):
    priority: int
    weight: int
    port: int
    host: str


def question(number: int, name: str) -> bytes:
    labels = [label.encode("idna") for label in name.rstrip(".").split(".")]
    if not all(0 < len(label) < 64 for label in labels):
        raise _failed(name, "not a name of DNS")
    packed = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    return (
        _HEADER.pack(number, RECURSION_DESIRED, 1, 0, 0, 0)
        + packed
        + TYPE_SRV.to_bytes(2, "big")
        + CLASS_IN.to_bytes(2, "big")
    )


def answers(message: bytes, number: int, name: str) -> list[Srv]:
    """The records, best first. Raises `TRANSPORT_CONNECTION_REFUSED` for what is no answer to the question."""
    try:
        return _answers(message, number, name)
    except (IndexError, ValueError, UnicodeError, StructError):
        raise _failed(name, "an answer that can't be read") from None


def _answers(message: bytes, number: int, name: str) -> list[Srv]:
    got, flags, questions, count, _, _ = _HEADER.unpack_from(message)
    if got != number or not flags & 0x8000:
        raise _failed(name, "an answer to something else")
    if flags & 0xF:
        raise _failed(name, f"the name server says error {flags & 0xF}")
    at = _HEADER.size
    for _ in range(questions):
        at = _name(message, at)[1] + 4
    found: list[Srv] = []
    for _ in range(min(count, RECORDS_MAX)):
        at = _name(message, at)[1]
        kind, _, _, size = _RECORD.unpack_from(message, at)
        at += _RECORD.size
        if kind == TYPE_SRV:
            priority, weight, port = _SRV.unpack_from(message, at)
            host, _ = _name(message, at + _SRV.size)
            found.append(Srv(priority, weight, port, host))
        at += size
    return sorted(found, key=lambda srv: (srv.priority, -srv.weight))


def _name(message: bytes, at: int) -> tuple[str, int]:
    """A name, which may end in a pointer to an earlier one; and what follows it."""
    labels: list[str] = []
    end = -1
    for _ in range(POINTERS_MAX + 128):
        size = message[at]
        if size >= 0xC0:
            end = at + 2 if end < 0 else end
            at = (size & 0x3F) << 8 | message[at + 1]
        elif size == 0:
            return ".".join(labels), (at + 1 if end < 0 else end)
        else:
            labels.append(message[at + 1 : at + 1 + size].decode("ascii"))
            at += 1 + size
    raise ValueError("a name without an end")


async def lookup_srv(name: str, servers: list[tuple[str, int]] | None = None) -> list[tuple[str, int]]:
    """Hosts and ports, best first."""
    last: Exception = _failed(name, "the system names no name server")
    for server in servers if servers is not None else name_servers():
        number = secrets.randbelow(65536)
        try:
            reply = await _ask(server, question(number, name))
            return [(srv.host, srv.port) for srv in answers(reply, number, name)]
        except (OSError, TimeoutError, TransportError) as problem:
            last = problem
    raise _failed(name, str(last) or type(last).__name__)


def name_servers(file: str = "/etc/resolv.conf") -> list[tuple[str, int]]:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return []
    return [(words[1], 53) for line in lines if (words := line.split())[:1] == ["nameserver"] and len(words) > 1]


async def _ask(server: tuple[str, int], message: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        async with asyncio.timeout(TIMEOUT_S):
            await loop.sock_connect(sock, server)
            await loop.sock_sendall(sock, message)
            return await loop.sock_recv(sock, 4096)


def _failed(name: str, why: str) -> TransportError:
    return TransportError("TRANSPORT_CONNECTION_REFUSED", f"SRV records of {name!r}: {why}", name=name)

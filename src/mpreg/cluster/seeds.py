"""Where a node may find others of its cluster: addresses as they stand, in a file, or in DNS.

tcp://host:6668        an address (ws, wss, tcp, tcps)
file:/etc/mpreg/seeds  one address a line; `#` begins a comment; read again each time
dns:nodes.example:6668 every address of the name, over tcp
srv:_mpreg._tcp.name   the hosts and ports of its SRV records, over tcp
"""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

from mpreg.cluster.srv import lookup_srv
from mpreg.errors import ConfigError, MpregError
from mpreg.transport.url import DEFAULT_PORTS, parse, url_of

log = logging.getLogger(__name__)

SEEDS_MAX = 1_000


class Seeds:
    """Raises `CONFIG_INVALID` for what can't be a seed."""

    def __init__(self, places: tuple[str, ...]) -> None:
        self._places = places
        for place in places:
            kind, _, rest = place.partition(":")
            if kind == "dns" and rest:
                _host_and_port(place, rest)
            elif kind not in ("file", "srv") or not rest:
                _check(place)

    async def urls(self) -> list[str]:
        """What can't be read or resolved at the moment is logged and left out."""
        found: dict[str, None] = {}
        for place in self._places:
            try:
                found.update(dict.fromkeys(await _addresses(place)))
            except (OSError, MpregError, UnicodeError) as problem:
                log.warning("The seeds of %s can't be read: %s", place, problem)
        return list(found)[:SEEDS_MAX]


async def _addresses(place: str) -> list[str]:
    kind, _, rest = place.partition(":")
    if kind == "file":
        return _lines(await asyncio.to_thread(Path(rest).read_text, "utf-8"))
    if kind == "dns":
        return await _resolve(*_host_and_port(place, rest))
    if kind == "srv":
        found: list[str] = []
        for host, port in await lookup_srv(rest):
            found += await _resolve(host, port)
        return found
    return [place]


def _lines(text: str) -> list[str]:
    stripped = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [str(parse(line)) for line in stripped if line]


async def _resolve(host: str, port: int) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [url_of("tcp", str(address[0]), port) for *_, address in infos]


def _host_and_port(place: str, rest: str) -> tuple[str, int]:
    host, _, port = rest.rpartition(":")
    if not host:
        return rest, DEFAULT_PORTS["tcp"]
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise _invalid(place, "the port must be 1 to 65535")
    return host.strip("[]"), int(port)


def _check(place: str) -> None:
    try:
        parse(place)
    except MpregError as error:
        raise _invalid(place, error.message) from None


def _invalid(place: str, why: str) -> ConfigError:
    return ConfigError("CONFIG_INVALID", f"join: {place!r}: {why}", setting="join")

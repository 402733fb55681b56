"""Where nodes may be found: addresses, a file, names of DNS."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.cluster import srv
from mpreg.cluster.seeds import Seeds
from mpreg.errors import ConfigError, TransportError

pytestmark = pytest.mark.anyio


async def test_addresses_are_taken_as_they_stand() -> None:
    assert await Seeds(("tcp://a:1", "wss://b", "tcp://a:1")).urls() == ["tcp://a:1", "wss://b"]


async def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "seeds"
    seeds = Seeds((f"file:{file}",))
    assert await seeds.urls() == []
    file.write_text("# the first\ntcp://a:1\n\n  ws://b:2  # another\n")
    assert await seeds.urls() == ["tcp://a:1", "ws://b:2"]
    file.write_text("tcp://a:1\nnonsense\n")
    assert await seeds.urls() == []  # said in the log


async def test_a_name_stands_for_all_its_addresses() -> None:
    assert "tcp://127.0.0.1:7" in await Seeds(("dns:localhost:7",)).urls()
    assert "tcp://127.0.0.1:6668" in await Seeds(("dns:localhost",)).urls()


@pytest.mark.parametrize("place", ["", "a", "http://a", "tcp://", "dns:", "dns:a:0", "dns:a:x", "file:", "srv:"])
def test_what_can_not_be_a_seed_is_refused(place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Seeds((place,))
    assert raised.value.details["setting"] == "join"


def name(text: str) -> bytes:
    return b"".join(bytes((len(label),)) + label.encode() for label in text.split(".")) + b"\0"


def answer(number: int, *records: tuple[int, int, int, str], flags: int = 0x8180) -> bytes:
    """As a name server would pack it: names of records point back to the question."""
    asked = name("_mpreg._tcp.x") + struct.pack(">HH", 33, 1)
    message = struct.pack(">HHHHHH", number, flags, 1, len(records), 0, 0) + asked
    for priority, weight, port, host in records:
        data = struct.pack(">HHH", priority, weight, port) + name(host)
        message += b"\xc0\x0c" + struct.pack(">HHIH", 33, 1, 60, len(data)) + data
    return message


def test_srv_records_come_best_first() -> None:
    message = answer(7, (20, 0, 1, "c.x"), (10, 1, 2, "b.x"), (10, 9, 3, "a.x"))
    found = srv.answers(message, 7, "_mpreg._tcp.x")
    assert [(each.host, each.port) for each in found] == [("a.x", 3), ("b.x", 2), ("c.x", 1)]


@pytest.mark.parametrize("message", [answer(8), answer(7, flags=0x0100), answer(7, flags=0x8183), b"", b"\0" * 12])
def test_an_answer_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(TransportError):
        srv.answers(message, 7, "x")


@given(st.binary(max_size=80), st.integers(0, 60))
def test_no_bytes_do_more_than_be_refused(noise: bytes, at: int) -> None:
    whole = answer(7, (1, 1, 1, "a.x"))
    for message in (noise, whole[:at] + noise + whole[at + len(noise) :]):
        try:
            srv.answers(message, 7, "x")
        except TransportError:
            continue


async def test_a_name_server_is_asked() -> None:
    class Server(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
            (number,) = struct.unpack_from(">H", data)
            assert data[12:].startswith(name("_mpreg._tcp.x"))
            self.transport.sendto(answer(number, (1, 1, 6668, "localhost")), address)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Server, ("127.0.0.1", 0), family=socket.AF_INET)
    try:
        port = transport.get_extra_info("sockname")[1]
        assert await srv.lookup_srv("_mpreg._tcp.x", [("127.0.0.1", port)]) == [("localhost", 6668)]
    finally:
        transport.close()
    with pytest.raises(TransportError):
        await srv.lookup_srv("_mpreg._tcp.x", [])

"""Sizes and framing: R-W2, R-W3, R-W4. What is too large is refused with the limit named, and hurts nobody else."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.conftest import Dial
from tests.conformance.raw import Raw
from tests.conformance.raw_websocket import Closed
from tests.conformance.served import Served

MB = 1_000_000


def call_of(raw: Raw, fun: str, length: int) -> bytes:
    """A call of one text argument, `length` bytes as a whole."""
    message: dict[str, Any] = {"role": "rpc", "u": "big", "cmds": [{"name": "c", "fun": fun, "args": [""]}]}

    def size(text: int) -> int:
        message["cmds"][0]["args"] = ["x" * text]
        return len(raw.encode(message))

    text = length - (size(length) - length)
    assert size(text) == length
    return raw.encode(message)


def test_a_frame_of_20_mb_is_taken(raw: Raw) -> None:
    raw.send_encoded(call_of(raw, "length_of", 20 * MB))
    reply = raw.receive()
    assert reply["u"] == "big"
    assert 20 * MB - 200 < reply["r"] < 20 * MB


def test_a_frame_of_20_mb_and_1_is_refused_with_the_limit_named(raw: Raw) -> None:
    """The stream is lost with it (R-W3), so the connection closes; the error uses the encoding spoken before."""
    assert raw.call("echo", 1)["r"] == 1
    raw.send_encoded(call_of(raw, "length_of", 20 * MB + 1))
    error = raw.receive()["error"]
    assert error["code"] == "RESOURCE_FRAME_TOO_LARGE"
    assert error["details"]["frame_bytes_max"] == 20 * MB
    raw.assert_closed()


@pytest.mark.parametrize("scheme", ["tcp", "tcps"])
def test_a_tcp_length_of_4_gib_is_answered_and_closes_the_connection(dial: Dial, scheme: str) -> None:
    raw = dial(scheme, "json")
    assert raw.call("echo", 1)["r"] == 1
    raw.send_bytes(b"\xff\xff\xff\xff")
    assert raw.receive()["error"]["code"] == "RESOURCE_FRAME_TOO_LARGE"
    raw.assert_closed()


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"], ids=["HTTP", "TLS"])
def test_something_else_on_the_tcp_port_is_answered_and_closed(dial: Dial, start: bytes) -> None:
    raw = dial("tcp", "json")
    raw.send_bytes(start)
    raw.assert_closed()


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_a_websocket_frame_of_4_gib_closes_the_connection(dial: Dial, scheme: str) -> None:
    raw = dial(scheme, "json")
    raw.send_bytes(b"\x81\xff" + struct.pack(">Q", 1 << 32) + b"\0\0\0\0")
    raw.assert_closed()


@pytest.mark.parametrize(
    "start", [b"\x83\x80\0\0\0\0", b"\x81\x05hello", b"\xf1\x80\0\0\0\0"], ids=["opcode 3", "not masked", "RSV bits"]
)
def test_what_is_no_websocket_frame_closes_the_connection(dial: Dial, start: bytes) -> None:
    raw = dial("ws", "json")
    raw.send_bytes(start)
    raw.assert_closed()


def test_half_a_frame_and_then_nothing_disturbs_nobody(raw: Raw, bystander: Raw) -> None:
    whole = raw.encode({"role": "rpc", "u": "1", "cmds": []})
    if raw.is_tcp:
        raw.send_bytes(struct.pack(">I", len(whole)) + whole[:10])
    else:
        raw.send_bytes(b"\x81" + bytes((0x80 | len(whole),)) + b"\0\0\0\0" + whole[:10])
    assert bystander.call("echo", 1)["r"] == 1
    raw.abort()


def test_a_frame_may_come_byte_by_byte(dial: Dial) -> None:
    raw = dial("tcp", "json")
    whole = raw.encode({"role": "rpc", "u": "1", "cmds": [{"name": "c", "fun": "echo", "args": [5]}]})
    for byte in struct.pack(">I", len(whole)) + whole:
        raw.send_bytes(bytes((byte,)))
    assert raw.receive()["r"] == 5


def test_many_frames_may_come_at_once(dial: Dial) -> None:
    raw = dial("tcp", "json")
    frames = b""
    for number in range(100):
        whole = raw.encode({"role": "rpc", "u": str(number), "cmds": [{"name": "c", "fun": "echo", "args": [number]}]})
        frames += struct.pack(">I", len(whole)) + whole
    raw.send_bytes(frames)
    assert sorted(raw.receive()["r"] for _ in range(100)) == list(range(100))


# Streamed messages.


def parts_of(data: bytes) -> Iterator[bytes]:
    step = 1 << 20
    return (data[at : at + step] for at in range(0, len(data), step))


def test_a_message_may_be_streamed_in_parts(raw: Raw) -> None:
    raw.send_in_parts([*parts_of(call_of(raw, "length_of", 3 * MB))])
    assert raw.receive()["r"] > 2 * MB
    assert raw.call("echo", 1)["r"] == 1


def test_90_mb_are_taken_in_parts_and_come_back_in_parts(served: Served, plain: Raw) -> None:
    """Memory stays within a small multiple of it."""
    plain.send_in_parts(parts_of(call_of(plain, "echo", 90 * MB)))
    reply = plain.receive()
    assert reply["error"] is None
    assert 90 * MB - 200 < len(reply["r"]) < 90 * MB
    assert plain.call("echo", 1)["r"] == 1
    assert served.memory_peak_bytes() < 800 * MB


def test_101_mb_are_refused_with_the_limit_named(plain: Raw) -> None:
    assert plain.call("echo", 1)["r"] == 1
    plain.send_in_parts(parts_of(call_of(plain, "length_of", 101 * MB)))
    error = plain.receive()["error"]
    assert error["code"] == "RESOURCE_MESSAGE_TOO_LARGE"
    assert error["details"]["message_bytes_max"] == 100 * MB
    assert plain.call("echo", 1)["r"] == 1


def test_a_result_of_101_mb_is_refused_with_the_limit_named(plain: Raw) -> None:
    error = plain.call("big", 101 * MB)["error"]
    assert error["code"] == "RESOURCE_MESSAGE_TOO_LARGE"
    assert error["details"]["message_bytes_max"] == 100 * MB
    assert plain.call("echo", 1)["r"] == 1


def test_who_does_not_read_is_closed_and_delays_nobody(plain: Raw, bystander: Raw) -> None:
    """R-W4: at most 100 MB wait for one client."""
    for number in range(12):
        plain.send_call("big", 15 * MB, u=f"r{number}")
    assert bystander.call("echo", "meanwhile")["r"] == "meanwhile"
    answered = 0
    with contextlib.suppress(Closed):
        while plain.receive():
            answered += 1
    assert answered < 12

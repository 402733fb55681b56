"""Frames on a TCP link: any portions of the same bytes mean the same."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.errors import MpregError
from mpreg.transport.tcp_frames import TcpFraming, TcpReader
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import Limits

LIMITS = Limits(frame_bytes_max=100, message_bytes_max=400, chunk_bytes=30)


class Sink:
    """A link and its handler in one: events in the order in which they came."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.closing = False
        self.handler = self

    def on_message(self, link: Any, message: bytes, encoding: Encoding) -> None:
        self.events.append((message, encoding))

    def refuse(self, error: MpregError) -> None:
        self.events.append(error.code)

    def fail(self, error: MpregError) -> None:
        self.events.append(("lost", error.code))
        self.closing = True


def read(*portions: bytes, limits: Limits = LIMITS) -> list[Any]:
    sink: Any = Sink()
    reader = TcpReader(sink, limits)
    for portion in portions:
        if not sink.closing:
            reader.feed(portion)
    events: list[Any] = sink.events
    return events


def framed(message: bytes, limits: Limits = LIMITS) -> bytes:
    framing = TcpFraming(limits)
    if len(message) > limits.frame_bytes_max:
        return b"".join(framing.pieces(message, Encoding.JSON))
    return framing.frame(message, Encoding.JSON)


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def message(first: bytes, size: int) -> bytes:
    return first + bytes(at % 251 for at in range(size))


messages = st.builds(message, st.sampled_from([b"{", b"\x81", b"\xde"]), st.integers(0, 399))
cuts = st.lists(st.integers(0, 10_000), max_size=30)


@given(st.lists(messages, max_size=8), cuts)
def test_any_split_of_the_bytes_gives_the_same_messages(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, sent))
    expected = [(m, Encoding.JSON if m[:1] == b"{" else Encoding.MSGPACK) for m in sent]
    assert read(*split(stream, cuts)) == expected


@given(st.lists(st.one_of(messages.map(framed), st.binary(max_size=60), st.just(bytes(4)))), cuts)
def test_any_split_of_any_bytes_gives_the_same_events(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    assert read(*split(stream, cuts)) == read(stream)


def test_length_0_is_a_keep_alive() -> None:
    assert read(bytes(4) + frame(b"{}") + bytes(4)) == [(b"{}", Encoding.JSON)]


@pytest.mark.parametrize("size", [101, 2**31, 2**32 - 1])
def test_a_length_over_the_limit_loses_framing_before_any_of_it_is_read(size: int) -> None:
    assert read(frame(b"{}") + struct.pack(">I", size) + frame(b"{}")) == [
        (b"{}", Encoding.JSON),
        ("lost", "RESOURCE_FRAME_TOO_LARGE"),
    ]


def test_a_frame_of_exactly_the_limit_is_taken() -> None:
    assert read(framed(b"{" + bytes(99))) == [(b"{" + bytes(99), Encoding.JSON)]


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01"])
def test_another_protocol_is_recognised(greeting: bytes) -> None:
    assert read(greeting, limits=Limits()) == [("lost", "PROTOCOL_FRAMING_LOST")]


def test_only_a_message_over_the_frame_limit_is_cut_into_chunks() -> None:
    assert framed(b"{" + bytes(99))[4:5] == b"{"
    assert framed(b"{" + bytes(100))[4:6] == b"\xc1\x01"


def test_messages_between_the_chunks_of_another_are_taken_at_once() -> None:
    stream = frame(b"\xc1\x01{1") + frame(b"{}") + frame(b"\xc1\x00}")
    assert read(stream) == [(b"{}", Encoding.JSON), (b"{1}", Encoding.JSON)]


def test_a_streamed_message_over_the_limit_is_skipped_and_the_link_goes_on() -> None:
    chunk = b"\xc1\x01{" + bytes(97)
    stream = frame(chunk) * 7 + frame(b"\xc1\x00") + frame(b"{}") + frame(b"\xc1\x00{}")
    assert read(stream) == ["RESOURCE_MESSAGE_TOO_LARGE", (b"{}", Encoding.JSON), (b"{}", Encoding.JSON)]


def test_a_streamed_message_of_exactly_the_limit_is_taken() -> None:
    long = message(b"{", 399)
    assert read(framed(long)) == [(long, Encoding.JSON)]
    assert read(framed(message(b"{", 400))) == ["RESOURCE_MESSAGE_TOO_LARGE"]


@pytest.mark.parametrize("chunk", [b"\xc1", b"\xc1\x02abc"])
def test_a_chunk_that_is_none_is_refused_and_the_link_goes_on(chunk: bytes) -> None:
    assert read(frame(chunk) + frame(b"\xc1\x00") + frame(b"{}")) == [
        "PROTOCOL_INVALID_FRAME",
        (b"{}", Encoding.JSON),
    ]


@given(st.integers(1, 4000), st.binary(max_size=3))
def test_what_is_kept_of_an_unfinished_frame_is_no_more_than_was_sent(size: int, tail: bytes) -> None:
    sink: Any = Sink()
    reader = TcpReader(sink, msgspec.structs.replace(LIMITS, frame_bytes_max=4000))
    reader.feed(struct.pack(">I", size) + b"{"[: size - 1])
    assert reader._partial.__sizeof__() < 200

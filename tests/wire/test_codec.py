"""Bytes to message and back: nothing is lost, and whatever the bytes are, the answer is a message or a
`ProtocolError`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.messages import messages, plain

from mpreg.errors import ProtocolError, RpcError
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding, encoding_of
from mpreg.wire.message import Message
from mpreg.wire.rpc import Rpc

JSON, MSGPACK = Encoding.JSON, Encoding.MSGPACK
encoded = st.one_of([st.tuples(messages(encoding), st.just(encoding)) for encoding in (JSON, MSGPACK)])
ENCODERS: dict[Encoding, Any] = {JSON: msgspec.json.encode, MSGPACK: msgspec.msgpack.encode}


def read(data: bytes, encoding: Encoding) -> Message | ProtocolError:
    """A message, or why it is none; any other exception is a failure of the test."""
    try:
        return codec.decode(data, encoding)
    except ProtocolError as problem:
        error = problem
    assert error.code.startswith("PROTOCOL_")
    assert error.message
    return error


def refused(data: Any, encoding: Encoding = JSON) -> tuple[str, str | None]:
    """Code and path of what is wrong."""
    error = read(data if isinstance(data, bytes) else ENCODERS[encoding](data), encoding)
    assert isinstance(error, ProtocolError)
    return error.code, error.details.get("path")


@settings(max_examples=400, deadline=None)
@given(encoded)
def test_every_message_comes_back_as_it_was(sent: tuple[Message, Encoding]) -> None:
    message, encoding = sent
    data = codec.encode(message, encoding)
    again = codec.decode(data, encoding)
    assert type(again) is type(message)
    assert again == message
    assert encoding_of(data) is encoding


@settings(max_examples=400, deadline=None)
@given(encoded, st.data())
def test_a_mutated_frame_is_a_message_or_a_protocol_error(sent: tuple[Message, Encoding], data: st.DataObject) -> None:
    message, encoding = sent
    frame = bytearray(codec.encode(message, encoding))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(frame) - 1)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "delete", "repeat"])):
            case "flip":
                frame[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
            case "cut":
                del frame[at:]
            case "insert":
                frame[at:at] = data.draw(st.binary(max_size=8))
            case "delete":
                del frame[at : at + data.draw(st.integers(1, 8))]
            case "repeat":
                frame += frame[at:]
    read(bytes(frame), encoding)
    codec.read_u(bytes(frame), encoding)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([JSON, MSGPACK]))
def test_any_bytes_are_a_message_or_a_protocol_error(data: bytes, encoding: Encoding) -> None:
    read(data, encoding)
    codec.read_u(data, encoding)


@settings(deadline=None)
@given(st.sampled_from(codec.MESSAGES), st.dictionaries(st.sampled_from(["u", "version", "r", "cmds"]), plain))
def test_any_fields_under_any_tag_are_a_message_or_a_protocol_error(cls: type[Message], fields: dict[str, Any]) -> None:
    config = cls.__struct_config__
    for encoding in (JSON, MSGPACK):
        read(ENCODERS[encoding]({str(config.tag_field): config.tag, **fields}), encoding)


@given(plain, st.sampled_from([JSON, MSGPACK]), st.sampled_from([JSON, MSGPACK]))
def test_a_value_is_the_same_in_either_encoding(value: Any, source: Encoding, target: Encoding) -> None:
    raw = codec.transcode(codec.encode_value(value, source), source, target)
    assert codec.decode_value(raw, target) == value


@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_the_field_that_tells_a_message_may_stand_anywhere(encoding: Encoding) -> None:
    for message in ({"u": "1", "role": "rpc-cancel"}, {"x": {"role": "rpc"}, "what": "GOODBYE"}):
        assert isinstance(read(ENCODERS[encoding](message), encoding), Message)


@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_what_is_wrong_is_named_by_its_path(encoding: Encoding) -> None:
    rpc = {"role": "rpc", "u": "1", "cmds": [{"name": "a", "fun": "f"}]}
    wrong: list[tuple[Any, str, str | None]] = [
        ([], "PROTOCOL_INVALID_MESSAGE", "$"),
        ("rpc", "PROTOCOL_INVALID_MESSAGE", "$"),
        ({}, "PROTOCOL_INVALID_MESSAGE", "$.role"),
        ({"role": 5}, "PROTOCOL_INVALID_MESSAGE", "$.role"),
        ({"role": None}, "PROTOCOL_INVALID_MESSAGE", "$.role"),
        ({"role": "weather"}, "PROTOCOL_UNKNOWN_ROLE", "$.role"),
        ({"what": "WEATHER"}, "PROTOCOL_UNKNOWN_ROLE", "$.what"),
        ({"role": "rpc", "u": "1"}, "PROTOCOL_INVALID_MESSAGE", "$.cmds"),
        (rpc | {"u": 5}, "PROTOCOL_INVALID_MESSAGE", "$.u"),
        (rpc | {"cmds": [{"name": "a"}]}, "PROTOCOL_INVALID_MESSAGE", "$.cmds[0].fun"),
        (rpc | {"cmds": [{"name": "a", "fun": 1}]}, "PROTOCOL_INVALID_MESSAGE", "$.cmds[0].fun"),
        (rpc | {"version": "3.0"}, "PROTOCOL_UNSUPPORTED_VERSION", "$.version"),
        (rpc | {"version": "1"}, "PROTOCOL_UNSUPPORTED_VERSION", "$.version"),
        (rpc | {"version": 2}, "PROTOCOL_INVALID_MESSAGE", "$.version"),
    ]
    for message, code, path in wrong:
        assert refused(message, encoding) == (code, path), message


@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_another_version_is_named_before_what_it_may_have_changed(encoding: Encoding) -> None:
    assert refused({"role": "new", "version": "3.1"}, encoding)[0] == "PROTOCOL_UNSUPPORTED_VERSION"


@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_unknown_fields_are_ignored(encoding: Encoding) -> None:
    sent = {"role": "rpc", "later": {"a": [1]}, "u": "1", "cmds": [{"name": "a", "fun": "f", "new": None}]}
    message = read(ENCODERS[encoding](sent), encoding)
    assert isinstance(message, Rpc)
    assert message.cmds[0].fun == "f"


@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_the_id_of_a_message_that_can_not_be_read_is_still_found(encoding: Encoding) -> None:
    assert codec.read_u(ENCODERS[encoding]({"role": "weather", "u": "7"}), encoding) == "7"
    assert codec.read_u(ENCODERS[encoding]({"role": "weather", "u": 7}), encoding) is None
    assert codec.read_u(b"", encoding) is None


@pytest.mark.parametrize("text", [b"", b"{", b"nonsense", b'{"role":"rpc"', b'{"role":"rpc"}x', b"\xff\xfe", b"\xc1"])
def test_what_is_no_json_is_an_invalid_frame(text: bytes) -> None:
    assert refused(text)[0] == "PROTOCOL_INVALID_FRAME"


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81", b"\x81\xa4role", b"\xdf\xff\xff\xff\xff", b"\xa4role"])
def test_what_is_no_messagepack_is_a_protocol_error(data: bytes) -> None:
    assert refused(data, MSGPACK)[0] in ("PROTOCOL_INVALID_FRAME", "PROTOCOL_INVALID_MESSAGE")


@pytest.mark.parametrize("where", [b'{"role":"rpc","u":"%s"}', b'{"role":"rpc","u":"1","cmds":[],"x":"%s"}'])
@pytest.mark.parametrize("text", [b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9f\x98"])
def test_text_that_is_not_utf_8_is_refused_wherever_it_stands(where: bytes, text: bytes) -> None:
    assert refused(where % text)[0] == "PROTOCOL_INVALID_FRAME"
    raw = b'{"role":"rpc","u":"1","cmds":[{"name":"a","fun":"f","args":["%s"]}]}' % text
    assert refused(raw)[0] == "PROTOCOL_INVALID_FRAME"


@pytest.mark.parametrize("depth", [500, 5_000, 1_000_000])
@pytest.mark.parametrize(
    "where", [b"%s", b'{"role":%s}', b'{"role":"rpc","u":%s}', b'{"x":%s,"role":"rpc","u":"1","cmds":[]}']
)
def test_deep_nesting_is_a_message_or_a_protocol_error(depth: int, where: bytes) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        read(where % (opening * depth + b"0" + closing * depth), JSON)
        read(where % (opening * depth), JSON)
    for opening in (b"\x91", b"\x81\xa1a"):
        read(b"\x82\xa1x" + opening * depth + b"\xc0\xa4role\xa3rpc", MSGPACK)
        read(opening * depth, MSGPACK)


@pytest.mark.parametrize("depth", [500, 1_000_000])
def test_a_deeply_nested_argument_is_found_when_it_is_decoded(depth: int) -> None:
    sent = b'{"role":"rpc","u":"1","cmds":[{"name":"a","fun":"f","args":%s}]}' % (b"[" * depth + b"]" * depth)
    message = read(sent, JSON)
    if isinstance(message, Rpc):
        args = message.cmds[0].args
        assert args is not msgspec.UNSET
        with pytest.raises(ProtocolError) if depth > 1000 else nullcontext() as failed:
            codec.decode_value(args, JSON)
        assert failed is None or failed.value.code == "PROTOCOL_INVALID_FRAME"


@pytest.mark.parametrize("value", [object(), 2**70, {1: object()}, "\ud800", float])
@pytest.mark.parametrize("encoding", [JSON, MSGPACK])
def test_what_has_no_encoding_says_so(value: Any, encoding: Encoding) -> None:
    if encoding is JSON and value == 2**70:
        assert bytes(codec.encode_value(value, encoding)) == json.dumps(value).encode()
        return
    with pytest.raises(RpcError) as failed:
        codec.encode_value(value, encoding)
    assert failed.value.code == "RPC_UNENCODABLE_RESULT"


def test_a_value_that_contains_itself_has_no_encoding() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for encoding in (JSON, MSGPACK):
        with pytest.raises(RpcError) as failed:
            codec.encode_value(circle, encoding)
        assert failed.value.code == "RPC_UNENCODABLE_RESULT"

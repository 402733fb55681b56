"""The envelope: note, "Message Format"; R-W1, R-W2, R-W3, R-W7."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conformance.conftest import Dial
from tests.conformance.raw import Raw

CALL = {"name": "call", "fun": "echo", "args": ["hi"], "kwargs": {}, "locs": []}


def rpc(**fields: Any) -> dict[str, Any]:
    return {"role": "rpc", "u": "req-1", "cmds": [CALL], **fields}


def error_of(raw: Raw, message: Any) -> dict[str, Any]:
    """What an `error-response` to this message says; the connection stays open after it."""
    return error_in(raw, raw.ask(message))


def error_in(raw: Raw, reply: Any) -> dict[str, Any]:
    assert reply["role"] == "error-response"
    assert raw.call("echo", 1)["r"] == 1
    error: dict[str, Any] = reply["error"]
    return error


def text_of(frame: str | bytes) -> str:
    """Of a reply in either encoding."""
    return frame if isinstance(frame, str) else frame.decode(errors="replace")


def test_a_reply_carries_the_u_of_its_request(raw: Raw) -> None:
    reply = raw.ask(rpc(u="req-12345"))
    assert reply["role"] == "rpc-response"
    assert reply["u"] == "req-12345"


def test_an_error_carries_the_u_of_its_request(raw: Raw) -> None:
    assert raw.ask({"role": "no-such-role", "u": "req-7"})["u"] == "req-7"


def test_an_error_to_a_message_without_u_has_none(raw: Raw) -> None:
    assert "u" not in raw.ask({"role": "no-such-role"})


def test_timestamp_and_version_are_optional(raw: Raw) -> None:
    assert raw.ask(rpc())["r"] == "hi"
    assert raw.ask(rpc(timestamp=1640995200.123, version="2.0"))["r"] == "hi"
    assert raw.ask(rpc(timestamp=1640995200))["r"] == "hi"


def test_another_minor_version_is_the_same_protocol(raw: Raw) -> None:
    assert raw.ask(rpc(version="2.17"))["r"] == "hi"


@pytest.mark.parametrize("version", ["1.0", "3.0", "20", "", "two"])
def test_another_major_version_is_refused(raw: Raw, version: str) -> None:
    reply = raw.ask(rpc(version=version))
    assert reply["u"] == "req-1"
    assert error_in(raw, reply)["code"] == "PROTOCOL_UNSUPPORTED_VERSION"


def test_unknown_fields_are_ignored(raw: Raw) -> None:
    assert raw.ask(rpc(unknown={"deep": [1]}, cmds=[{**CALL, "more": 1}]))["r"] == "hi"


def test_the_order_of_fields_does_not_matter(raw: Raw) -> None:
    assert raw.ask({"cmds": [CALL], "u": "req-1", "role": "rpc"})["r"] == "hi"


def test_an_unknown_role_is_refused(raw: Raw) -> None:
    error = error_of(raw, {"role": "teleport", "u": "1"})
    assert error["code"] == "PROTOCOL_UNKNOWN_ROLE"
    assert "teleport" in error["message"]


@pytest.mark.parametrize(
    ("message", "path"),
    [
        pytest.param({"u": "1", "cmds": [CALL]}, "$.role", id="no role"),
        pytest.param({}, "$.role", id="nothing"),
        pytest.param({"role": 5, "u": "1"}, "$.role", id="role is a number"),
        pytest.param({"role": "rpc", "cmds": [CALL]}, "$.u", id="no u"),
        pytest.param(rpc(u=5), "$.u", id="u is a number"),
        pytest.param(rpc(u=None), "$.u", id="u is null"),
        pytest.param({"role": "rpc", "u": "1"}, "$.cmds", id="no cmds"),
        pytest.param(rpc(cmds={"name": "call"}), "$.cmds", id="cmds is an object"),
        pytest.param(rpc(cmds=[5]), "$.cmds[0]", id="a command is a number"),
        pytest.param(rpc(cmds=[{"name": "call"}]), "$.cmds[0].fun", id="no fun"),
        pytest.param(rpc(cmds=[CALL, {**CALL, "fun": 5}]), "$.cmds[1].fun", id="fun is a number"),
        pytest.param(rpc(cmds=[{"fun": "echo"}]), "$.cmds[0].name", id="no name"),
        pytest.param(rpc(cmds=[{**CALL, "locs": "gpu"}]), "$.cmds[0].locs", id="locs is a string"),
        pytest.param(rpc(cmds=[{**CALL, "locs": [5]}]), "$.cmds[0].locs[0]", id="a loc is a number"),
        pytest.param(rpc(version=2), "$.version", id="version is a number"),
        pytest.param(rpc(timestamp="now"), "$.timestamp", id="timestamp is a string"),
        pytest.param(rpc(timeout_ms="soon"), "$.timeout_ms", id="timeout is a string"),
        pytest.param({"what": 5}, "$.what", id="what is a number"),
        pytest.param({"role": "rpc-cancel"}, "$.u", id="cancel without u"),
    ],
)
def test_a_missing_or_mistyped_field_is_named_by_its_path(raw: Raw, message: Any, path: str) -> None:
    reply = raw.ask(message)
    error = error_in(raw, reply)
    assert error["code"] == "PROTOCOL_INVALID_MESSAGE"
    assert error["details"]["path"] == path
    if isinstance(message.get("u"), str):
        assert reply["u"] == message["u"]


@pytest.mark.parametrize("message", [[], [1, 2], "text", 5, 1.5, None, True], ids=repr)
def test_a_message_that_is_no_object_is_refused(raw: Raw, message: Any) -> None:
    """On TCP it counts as MessagePack, since it does not open with `{` (R-W2)."""
    raw.send(message)
    assert text_of(raw.receive_frame()).count("PROTOCOL_INVALID_") == 1
    assert raw.call("echo", 1)["r"] == 1


@pytest.mark.parametrize(
    "data",
    [b"{", b'{"role": "rpc"', b'{"role": "rpc",}', b"hello", b'{"role": nan}', b"\xff\xfe\xfd", b"{}{}", b"\x00"],
    ids=repr,
)
def test_a_frame_that_can_not_be_read_is_refused(raw: Raw, data: bytes) -> None:
    raw.send_binary(data)
    assert "PROTOCOL_" in text_of(raw.receive_frame())
    assert raw.call("echo", 1)["r"] == 1


def test_an_empty_frame_disturbs_nothing(raw: Raw) -> None:
    """On TCP it is a keep-alive (R-W2)."""
    if raw.is_tcp:
        raw.send_bytes(b"\x00\x00\x00\x00" * 3)
    else:
        raw.send_encoded(b"")
        assert raw.receive()["error"]["code"] == "PROTOCOL_INVALID_FRAME"
    assert raw.call("echo", 1)["r"] == 1


@pytest.mark.parametrize("depth", [200, 5_000, 500_000])
def test_a_deeply_nested_message_is_refused_or_read_but_never_fatal(raw: Raw, depth: int) -> None:
    if raw.encoding == "json":
        nested = b"[" * depth + b"]" * depth
        raw.send_encoded(b'{"role":"rpc","u":"1","cmds":' + nested + b"}")
    else:
        raw.send_encoded(b"\x83\xa4role\xa3rpc\xa1u\xa11\xa4cmds" + b"\x91" * depth + b"\x90")
    assert raw.receive()["error"]["code"] in ("PROTOCOL_INVALID_MESSAGE", "PROTOCOL_INVALID_FRAME")
    assert raw.call("echo", 1)["r"] == 1


@pytest.mark.parametrize("depth", [200, 5_000, 500_000])
def test_deeply_nested_arguments_are_refused_or_returned_but_never_fatal(raw: Raw, depth: int) -> None:
    if raw.encoding == "json":
        nested = b"[" * depth + b"]" * depth
        raw.send_encoded(b'{"role":"rpc","u":"1","cmds":[{"name":"c","fun":"echo","args":[' + nested + b"]}]}")
    else:
        command = b"\x83\xa4name\xa1c\xa3fun\xa4echo\xa4args\x91" + b"\x91" * depth + b"\x90"
        raw.send_encoded(b"\x83\xa4role\xa3rpc\xa1u\xa11\xa4cmds\x91" + command)
    text = text_of(raw.receive_frame())
    assert depth == 200 or "PROTOCOL_" in text or "RPC_" in text
    assert raw.call("echo", 1)["r"] == 1


@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_invalid_utf8_is_refused(dial: Dial, transport: str) -> None:
    raw = dial(transport, "json")
    raw.send_binary(b'{"role":"rpc","u":"1","cmds":[{"name":"c","fun":"echo","args":["\xff\xfe"]}]}')
    frame = raw.receive_frame()
    reply = json.loads(frame)
    assert reply["error"]["code"] in ("PROTOCOL_INVALID_FRAME", "PROTOCOL_INVALID_MESSAGE")
    assert raw.call("echo", 1)["r"] == 1


@pytest.mark.parametrize(
    "message",
    [
        {"role": "internal-rpc", "u": "1", "command": "echo", "args": [], "kwargs": {}, "results": {}},
        {"role": "internal-answer", "u": "1", "r": 5},
        {"role": "rpc-response", "u": "1", "r": 5},
        {"role": "error-response", "u": "1", "error": {"type": "X", "message": "x"}},
        {"what": "HELLO", "u": "1", "funs": ["f"], "locs": [], "cluster_id": "c", "advertised_urls": []},
        {"what": "GOODBYE", "u": "1"},
    ],
    ids=lambda message: next(iter(message.values())),
)
def test_a_client_does_not_become_a_node_by_claiming_so(raw: Raw, message: Any) -> None:
    """R-G4."""
    reply = raw.ask(message)
    code = "CLUSTER_NOT_CLUSTERED" if message.get("what") == "HELLO" else "PROTOCOL_UNEXPECTED_MESSAGE"
    assert error_in(raw, reply)["code"] == code
    assert reply["u"] == "1"


def test_an_error_has_the_fields_of_the_note(raw: Raw) -> None:
    reply = raw.ask({"role": "rpc", "u": "req-12345"})
    error = reply["error"]
    assert isinstance(error["type"], str)
    assert isinstance(error["message"], str)
    assert isinstance(error["timestamp"], float)
    assert error["code"] == "PROTOCOL_INVALID_MESSAGE"
    assert error["request_id"] == "req-12345"
    assert error["details"] == {"path": "$.cmds"}
    assert "traceback" not in error


# R-W2: encodings.


@pytest.mark.parametrize("transport", ["ws", "tcp"])
def test_json_in_a_binary_frame_is_told_by_its_first_byte(dial: Dial, transport: str) -> None:
    raw = dial(transport, "json")
    raw.send_binary(raw.encode(rpc()))
    assert raw.receive()["r"] == "hi"


@pytest.mark.parametrize("transport", ["ws", "tcp"])
def test_a_reply_uses_the_encoding_of_its_request(dial: Dial, transport: str) -> None:
    raw = dial(transport, "json")
    for encoding in ("msgpack", "json", "msgpack", "json"):
        raw.encoding = encoding
        assert raw.ask(rpc())["r"] == "hi"


@pytest.mark.parametrize("transport", ["ws", "tcp"])
def test_an_error_uses_the_encoding_of_what_it_answers(dial: Dial, transport: str) -> None:
    raw = dial(transport, "json")
    for encoding in ("msgpack", "json", "msgpack"):
        raw.encoding = encoding
        assert raw.ask({"role": "nonsense", "u": "1"})["error"]["code"] == "PROTOCOL_UNKNOWN_ROLE"


def test_a_text_frame_is_answered_with_a_text_frame(dial: Dial) -> None:
    raw = dial("ws", "json")
    raw.send(rpc())
    assert isinstance(raw.receive_frame(), str)


def test_a_binary_frame_of_messagepack_is_answered_with_a_binary_frame(dial: Dial) -> None:
    raw = dial("ws", "msgpack")
    raw.send(rpc())
    assert isinstance(raw.receive_frame(), bytes)


def test_messagepack_carries_bytes(dial: Dial) -> None:
    assert dial("tcp", "msgpack").call("echo", b"\x00\xff")["r"] == b"\x00\xff"

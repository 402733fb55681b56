"""`mpreg call`: what is typed, what the function gets, what is printed, and what the exit code says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import make_certificates
from tests.cli.conftest import Mpreg
from tests.conformance.served import Served

from mpreg.cli.call import arguments


@pytest.mark.parametrize(
    ("words", "args", "kwargs"),
    [
        ((), [], {}),
        (("3", "3.5", "true", "null", '"3"'), [3, 3.5, True, None, "3"], {}),
        (("three", "", "it's", "{", "NaN"), ["three", "", "it's", "{", "NaN"], {}),
        (("[1,2]", '{"a": [null]}'), [[1, 2], {"a": [None]}], {}),
        (("a", "by=+", "n=[1]"), ["a"], {"by": "+", "n": [1]}),
        (("x=a=b", "y="), [], {"x": "a=b", "y": ""}),
        (("1=2", "a b=c", '"a=b"'), ["1=2", "a b=c", "a=b"], {}),
    ],
)
def test_an_argument_is_json_or_else_text(words: tuple[str, ...], args: list[Any], kwargs: dict[str, Any]) -> None:
    assert arguments(words) == (args, kwargs)


@pytest.mark.parametrize("scheme", ["ws", "wss", "tcp", "tcps"])
def test_it_calls_by_every_transport(served: Served, mpreg: Mpreg, scheme: str) -> None:
    trust = ("--tls-ca", served.certificates.ca) if scheme in ("wss", "tcps") else ()
    assert mpreg("call", "add", "1", "2", "--url", served.listeners[scheme], *trust) == (0, "3\n", "")


def test_text_is_printed_as_it_is_and_anything_else_as_json(at: Mpreg) -> None:
    assert at("call", "join", "a", "b", "by=+").out == "a+b\n"
    assert json.loads(at("call", "user", "7").out) == {"id": 7, "tags": ["a", "b"], "address": {"town": "Kyoto"}}
    assert at("call", "echo", "null").out == "null\n"
    assert at("call", "echo", "é漢").out == "é漢\n"


def test_json_is_for_programs(at: Mpreg) -> None:
    assert at("call", "join", "a", "b", "--json").out == '"a-b"\n'
    assert at("call", "user", "7", "--json").out.count("\n") == 1


def test_an_argument_that_looks_like_an_option_is_one_of_the_function(at: Mpreg) -> None:
    assert at("call", "add", "1", "-3").out == "-2\n"


def test_resources_are_asked_for_by_loc(at: Mpreg) -> None:
    assert at("call", "render", "sky", "--loc", "gpu", "--loc", "eu").out == "sky rendered\n"
    refused = at("call", "render", "sky", "--loc", "mars")
    assert (refused.code, refused.out) == (1, "")
    assert "RPC_RESOURCE_NOT_FOUND" in refused.err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["no_such_function"], "RPC_FUNCTION_NOT_FOUND"),
        (["add", "1", "two"], "RPC_INVALID_ARGUMENT"),
        (["raises", "on purpose"], "RPC_FUNCTION_FAILED"),
        (["unencodable"], "RPC_UNENCODABLE_RESULT"),
        (["never", "cli", "--timeout", "0.05"], "TIMEOUT_EXCEEDED"),
    ],
)
def test_what_went_wrong_is_one_line_and_exit_code_1(at: Mpreg, args: list[str], code: str) -> None:
    said = at("call", *args)
    assert (said.code, said.out) == (1, "")
    (line,) = said.err.splitlines()
    assert line.startswith("mpreg: ")
    assert line.endswith(f"[{code}]")


def test_an_error_for_programs_has_its_fields(at: Mpreg) -> None:
    said = at("call", "add", "1", "two", "--json")
    error = json.loads(said.err)["error"]
    assert (error["code"], error["details"]["path"]) == ("RPC_INVALID_ARGUMENT", "args[1]")


@pytest.mark.parametrize(
    "args", [["call"], ["call", "f", "a=1", "2"], ["call", "f", "a=1", "a=2"], ["call", "f", "--timeout", "0"]]
)
def test_wrong_usage_is_exit_code_2(at: Mpreg, args: list[str]) -> None:
    said = at(*args)
    assert (said.code, said.out) == (2, "")
    assert "Traceback" not in said.err


def test_a_node_that_is_not_there_is_named(mpreg: Mpreg) -> None:
    said = mpreg("call", "echo", "1", "--url", "tcp://127.0.0.1:1")
    assert said.code == 1
    assert "tcp://127.0.0.1:1" in said.err
    assert "TRANSPORT_CONNECTION_REFUSED" in said.err


def test_of_several_addresses_the_first_that_answers_is_used(served: Served, mpreg: Mpreg) -> None:
    assert mpreg("call", "add", "1", "2", "--url", f"tcp://127.0.0.1:1,{served.listeners['tcp']}").out == "3\n"


def test_a_certificate_is_shown_where_a_node_asks_for_one(
    tmp_path_factory: pytest.TempPathFactory, mpreg: Mpreg
) -> None:
    files = make_certificates(tmp_path_factory.mktemp("mutual"))
    with Served(files, "mutual") as node:
        where = ("--url", node.listeners["tcps"], "--tls-ca", files.ca)
        assert mpreg("call", "add", "1", "2", *where).code == 1
        assert mpreg("call", "add", "1", "2", *where, "--tls-cert", files.cert, "--tls-key", files.key).out == "3\n"
        node.stop()


def test_a_file_that_is_not_there_is_named(served: Served, mpreg: Mpreg, tmp_path: Path) -> None:
    said = mpreg("call", "echo", "1", "--url", served.listeners["wss"], "--tls-ca", "none.pem")
    assert said.code == 1
    assert "none.pem" in said.err

"""`mpreg bench rpc`: figures of a node, in a table or as JSON lines."""

from __future__ import annotations

import json

from tests.cli.conftest import Mpreg

SHORT = ("--secs", "0.05")


def test_it_measures_latency_and_throughput(at: Mpreg) -> None:
    said = at("bench", "rpc", *SHORT, "--json", "--in-flight", "4")
    figures = [json.loads(line) for line in said.out.splitlines()]
    assert {(each["case"], each["metric"], each["unit"]) for each in figures} == {
        ("sequential", "p50", "us"),
        ("sequential", "p99", "us"),
        ("sequential", "calls", "1/s"),
        ("4 in flight", "calls", "1/s"),
    }
    assert all(each["value"] > 0 and each["peer"] == "mpreg" for each in figures)


def test_for_people_it_is_a_table_that_names_the_node(at: Mpreg) -> None:
    said = at("bench", "rpc", *SHORT)
    assert said.code == 0
    assert "echo with 64 bytes at ws://127.0.0.1:" in said.out
    assert "64 in flight" in said.out


def test_a_function_that_is_not_there_ends_it(at: Mpreg) -> None:
    said = at("bench", "rpc", *SHORT, "--fun", "nobody")
    assert said.code == 1
    assert "RPC_FUNCTION_NOT_FOUND" in said.err
    assert "Traceback" not in said.err

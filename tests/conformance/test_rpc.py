"""Calls: note, "RPC Protocol"; R-W6, R-W7, R-R1 to R-R8."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.conftest import Dial
from tests.conformance.raw import Raw


def cmd(name: str, fun: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"name": name, "fun": fun, "args": args, "kwargs": kwargs, "locs": []}


def unique() -> str:
    return uuid4().hex


# The note.


def test_success_has_the_result_in_r_and_no_error(raw: Raw) -> None:
    assert raw.call("add", 1, 2, u="req-12345") == {"role": "rpc-response", "u": "req-12345", "r": 3, "error": None}


def test_failure_has_no_result_and_an_error(raw: Raw) -> None:
    reply = raw.call("raises", "Invalid argument")
    assert reply["role"] == "rpc-response"
    assert reply["r"] is None
    assert reply["error"]["type"] == "ValueError"
    assert reply["error"]["message"] == "Invalid argument"
    assert reply["error"]["code"] == "RPC_FUNCTION_FAILED"


@pytest.mark.parametrize(
    "value", [None, True, 0, -1, 2**53, 1.5, "", "é漢\U0001f600", [], {}, [1, [2, {"a": None}]], {"": [{}]}], ids=repr
)
def test_any_value_comes_back_as_it_was_sent(raw: Raw, value: Any) -> None:
    assert raw.call("echo", value)["r"] == value


def test_args_are_positional_and_kwargs_are_keywords(raw: Raw) -> None:
    assert raw.call("join", "a", "b", kwargs={"by": "+"})["r"] == "a+b"


def test_args_kwargs_and_locs_may_be_absent(raw: Raw) -> None:
    assert raw.request({"name": "c", "fun": "join"})["r"] == ""
    assert raw.request({"name": "c", "fun": "add", "kwargs": {"a": 1, "b": 2}})["r"] == 3


# R-R1, R-R2, R-R3: several commands.


def test_several_commands_answer_with_the_final_ones_by_name(raw: Raw) -> None:
    reply = raw.request(cmd("sum", "add", 1, 2), cmd("twice", "add", "sum", "sum"), cmd("other", "echo", 5))
    assert reply["r"] == {"twice": 6, "other": 5}


def test_intermediate_answers_with_all_of_them(raw: Raw) -> None:
    reply = raw.request(cmd("sum", "add", 1, 2), cmd("twice", "add", "sum", "sum"), intermediate=True)
    assert reply["r"] == {"sum": 3, "twice": 6}
    assert raw.request(cmd("only", "add", 1, 2), intermediate=True)["r"] == {"only": 3}


def test_a_reference_walks_into_a_result(raw: Raw) -> None:
    reply = raw.request(
        cmd("who", "user", 7), cmd("tag", "echo", "who.tags.1"), cmd("town", "echo", {"in": ["who.address.town"]})
    )
    assert reply["r"] == {"tag": "b", "town": {"in": ["Kyoto"]}}


def test_references_work_in_kwargs(raw: Raw) -> None:
    reply = raw.request(cmd("sum", "add", 1, 2), cmd("next", "add", a="sum", b={"$ref": "sum"}))
    assert reply["r"] == {"next": 6}


@pytest.mark.parametrize("path", ["who.missing", "who.tags.2", "who.tags.-1", "who.tags.x", "who.id.0", "who.address."])
def test_a_path_that_does_not_exist_is_named(raw: Raw, path: str) -> None:
    error = raw.request(cmd("who", "user", 7), cmd("bad", "echo", path))["error"]
    assert error["code"] == "RPC_REFERENCE_NOT_FOUND"
    assert error["command"] == "bad"
    assert path in str(error["details"])


def test_a_string_that_is_no_name_is_a_string(raw: Raw) -> None:
    reply = raw.request(cmd("a", "echo", "b.c"), cmd("d", "echo", "nobody"), cmd("e", "echo", "e"))
    assert reply["r"] == {"a": "b.c", "d": "nobody", "e": "e"}


def test_a_request_of_one_command_has_no_references(raw: Raw) -> None:
    assert raw.request(cmd("a", "echos", "a", "a.b", {"$ref": "a"}))["r"] == ["a", "a.b", {"$ref": "a"}]


def test_literal_keeps_a_string_from_being_a_reference(raw: Raw) -> None:
    reply = raw.request(cmd("a", "echo", 1), cmd("b", "echos", {"$literal": "a"}, {"$literal": {"$ref": "a"}}))
    assert reply["r"] == {"a": 1, "b": ["a", {"$ref": "a"}]}


def test_ref_is_the_explicit_form(raw: Raw) -> None:
    reply = raw.request(cmd("who", "user", 7), cmd("b", "echo", {"$ref": "who.tags.0"}))
    assert reply["r"] == {"b": "a"}


def test_independent_commands_run_at_the_same_time(raw: Raw) -> None:
    one, two = unique(), unique()
    reply = raw.request(cmd("a", "meet", one, two), cmd("b", "meet", two, one), timeout_ms=10_000)
    assert reply["r"] == {"a": one, "b": two}


def test_a_command_runs_as_soon_as_its_own_inputs_are_there(raw: Raw) -> None:
    """`c` needs `a` only; were it to wait for `b` as well, `b` would wait for it forever."""
    one, two = unique(), unique()
    reply = raw.request(
        cmd("a", "echo", one), cmd("b", "meet", two, one), cmd("c", "meet", "a", two), timeout_ms=10_000
    )
    assert reply["r"] == {"b": two, "c": one}


@pytest.mark.parametrize(
    "commands",
    [
        [cmd("a", "echo", "b"), cmd("b", "echo", "a")],
        [cmd("a", "echo", "b"), cmd("b", "echo", "c.x"), cmd("c", "echo", {"deep": ["a"]})],
    ],
)
def test_a_cycle_is_refused_before_anything_runs(raw: Raw, commands: list[dict[str, Any]]) -> None:
    name = unique()
    error = raw.request(*commands, cmd("innocent", "count", name))["error"]
    assert error["code"] == "RPC_CYCLE"
    assert raw.call("counted_so_far", name)["r"] == 0


def test_two_commands_of_one_name_are_refused_before_anything_runs(raw: Raw) -> None:
    name = unique()
    error = raw.request(cmd("a", "count", name), cmd("a", "count", name))["error"]
    assert error["code"] == "RPC_INVALID_REQUEST"
    assert "'a'" in error["message"]
    assert raw.call("counted_so_far", name)["r"] == 0


def test_a_request_without_commands_is_refused(raw: Raw) -> None:
    assert raw.request()["error"]["code"] == "RPC_INVALID_REQUEST"


def test_a_request_has_at_most_1000_commands(raw: Raw) -> None:
    assert len(raw.request(*(cmd(f"c{i}", "echo", i) for i in range(1000)))["r"]) == 1000
    error = raw.request(*(cmd(f"c{i}", "echo", i) for i in range(1001)))["error"]
    assert error["code"] == "RPC_INVALID_REQUEST"
    assert error["details"]["limit"] == 1000


def test_when_one_fails_the_request_fails_with_its_name_and_what_has_not_started_does_not(raw: Raw) -> None:
    name = unique()
    error = raw.request(cmd("bad", "raises", "no"), cmd("after", "count", name), cmd("x", "echos", "bad", "after"))
    assert error["r"] is None
    assert error["error"]["command"] == "bad"
    error = raw.request(cmd("bad", "raises", "no"), cmd("needs", "count", "bad"))["error"]
    assert error["command"] == "bad"
    assert raw.call("counted_so_far", "bad")["r"] == 0


# R-R4: resources.


def test_locs_are_a_subset_of_what_the_function_declares(raw: Raw) -> None:
    for locs in ([], ["gpu"], ["eu", "gpu"]):
        assert raw.call("render", "sky", locs=locs)["r"] == "sky rendered"


def test_a_function_that_no_one_has_is_answered_at_once(raw: Raw) -> None:
    error = raw.call("no_such_function", timeout_ms=86_400_000)["error"]
    assert error["code"] == "RPC_FUNCTION_NOT_FOUND"
    assert "no_such_function" in error["message"]


@pytest.mark.parametrize("locs", [["mars"], ["gpu", "mars"]])
def test_a_function_without_these_resources_is_answered_at_once(raw: Raw, locs: list[str]) -> None:
    error = raw.call("render", "sky", locs=locs, timeout_ms=86_400_000)["error"]
    assert error["code"] == "RPC_RESOURCE_NOT_FOUND"
    assert error["details"]["locs"] == locs


# R-R6: arguments and results.


@pytest.mark.parametrize(
    ("args", "kwargs", "path"),
    [
        pytest.param([1, "two"], {}, "args[1]", id="wrong type"),
        pytest.param([1], {}, "args[1]", id="missing"),
        pytest.param([1, 2, 3], {}, "args[2]", id="too many"),
        pytest.param([1], {"b": "two"}, "kwargs.b", id="wrong keyword type"),
        pytest.param([1, 2], {"c": 3}, "c", id="unknown keyword"),
        pytest.param([1, 2], {"a": 3}, "a", id="given twice"),
        pytest.param([None, 2], {}, "args[0]", id="null"),
    ],
)
def test_arguments_are_checked_against_the_type_hints(
    raw: Raw, args: list[Any], kwargs: dict[str, Any], path: str
) -> None:
    error = raw.call("add", *args, kwargs=kwargs)["error"]
    assert error["code"] == "RPC_INVALID_ARGUMENT"
    assert path in error["details"]["path"]


def test_the_path_goes_into_a_wrong_argument(raw: Raw) -> None:
    assert raw.call("distance", {"x": 1, "y": 2}, {"x": 4, "y": 6})["r"] == 7
    error = raw.call("distance", {"x": 1, "y": 2}, {"x": 4, "y": "six"})["error"]
    assert error["code"] == "RPC_INVALID_ARGUMENT"
    assert error["details"]["path"].endswith("args[1].y")


@pytest.mark.parametrize("field", ["args", "kwargs"])
def test_args_are_an_array_and_kwargs_are_an_object(raw: Raw, field: str) -> None:
    error = raw.request({"name": "c", "fun": "add", field: "no"})["error"]
    assert error["code"] == "RPC_INVALID_ARGUMENT"
    assert field in error["details"]["path"]


@pytest.mark.parametrize("fun", ["unencodable", "endless"])
def test_a_result_that_can_not_be_encoded_is_an_error(raw: Raw, fun: str) -> None:
    assert raw.call(fun)["error"]["code"] == "RPC_UNENCODABLE_RESULT"


@pytest.mark.parametrize(
    ("fun", "type"), [("raises_unreadable", "Unreadable"), ("exits", "SystemExit"), ("stops", "RuntimeError")]
)
def test_whatever_a_function_raises_is_its_callers_error(raw: Raw, fun: str, type: str) -> None:
    error = raw.call(fun)["error"]
    assert error["code"] == "RPC_FUNCTION_FAILED"
    assert error["type"] == type


def test_a_function_that_cancels_itself_is_answered(raw: Raw) -> None:
    error = raw.call("interrupts")["error"]
    assert (error["code"], error["type"]) == ("RPC_FUNCTION_FAILED", "CancelledError")


def test_an_error_of_ours_keeps_its_code(raw: Raw) -> None:
    error = raw.call("raises_ours")["error"]
    assert (error["code"], error["type"], error["details"]) == ("QUEUE_FULL", "QueueError", {"limit": 3})


def test_an_error_whose_details_have_no_encoding_is_answered_all_the_same(raw: Raw) -> None:
    assert raw.call("raises_ours_with_odd_details")["error"]["code"].startswith(("QUEUE_", "RPC_", "PROTOCOL_"))


def test_a_traceback_is_for_nodes_in_debug_only(raw: Raw) -> None:
    assert "traceback" not in raw.call("raises", "x")["error"]


# R-R7: time, and being no longer wanted.


def test_a_function_that_never_returns_ends_with_its_timeout(raw: Raw) -> None:
    name = unique()
    error = raw.call("never", name, timeout_ms=50)["error"]
    assert error["code"] == "TIMEOUT_EXCEEDED"
    assert error["details"]["timeout_ms"] == 50
    assert raw.call("cancelled", name)["r"] is True


def test_the_timeout_covers_the_request_as_a_whole(raw: Raw) -> None:
    one, two = unique(), unique()
    error = raw.request(cmd("a", "echo", one), cmd("b", "never", two), cmd("c", "echos", "a", "b"), timeout_ms=50)
    assert error["error"]["code"] == "TIMEOUT_EXCEEDED"
    assert raw.call("cancelled", two)["r"] is True


@pytest.mark.parametrize("timeout_ms", [0, -1, 1e12])
def test_a_timeout_out_of_range_is_refused(raw: Raw, timeout_ms: float) -> None:
    error = raw.call("echo", 1, timeout_ms=timeout_ms)["error"]
    assert error["code"] == "RPC_INVALID_REQUEST"
    assert error["details"]["path"] == "$.timeout_ms"


def test_rpc_cancel_stops_the_request_and_is_answered_with_it(raw: Raw) -> None:
    name = unique()
    u = raw.send_call("never", name)
    raw.send({"role": "rpc-cancel", "u": u})
    reply = raw.receive()
    assert (reply["u"], reply["error"]["code"]) == (u, "RPC_CANCELLED")
    assert raw.call("cancelled", name)["r"] is True


def test_cancelling_what_is_unknown_or_answered_does_nothing(raw: Raw) -> None:
    raw.send({"role": "rpc-cancel", "u": "nobody"})
    reply = raw.call("echo", 1, u="done")
    raw.send({"role": "rpc-cancel", "u": "done"})
    assert reply["r"] == 1
    assert raw.call("echo", 2)["r"] == 2


def test_only_its_own_connection_can_cancel_a_request(raw: Raw, dial: Dial) -> None:
    gate = unique()
    u = raw.send_call("wait_at", gate)
    other = dial("ws", "json")
    other.send({"role": "rpc-cancel", "u": u})
    other.call("open_gate", gate)
    assert raw.receive()["r"] == gate


def test_the_loss_of_the_connection_cancels_what_runs(raw: Raw, bystander: Raw) -> None:
    name = unique()
    raw.send_call("never", name)
    assert bystander.call("arrived", name)["r"] is True
    raw.abort()
    assert bystander.call("cancelled", name)["r"] is True


def test_a_reply_to_a_connection_that_has_gone_harms_nobody(raw: Raw, bystander: Raw) -> None:
    gate = unique()
    for _ in range(10):
        raw.send_call("wait_at", gate)
    raw.send_call("never", gate + "here")
    assert bystander.call("arrived", gate + "here")["r"] is True
    bystander.send_call("open_gate", gate)
    raw.abort()
    assert bystander.receive()["error"] is None


# R-W6: side by side.


def test_a_slow_request_does_not_hold_up_the_next_one(raw: Raw) -> None:
    gate = unique()
    slow = raw.send_call("wait_at", gate)
    assert raw.call("echo", "fast")["r"] == "fast"
    quick = raw.send_call("open_gate", gate)
    replies = {raw.receive()["u"] for _ in range(2)}
    assert replies == {slow, quick}


def test_a_function_that_blocks_its_thread_delays_nobody(raw: Raw, bystander: Raw) -> None:
    blocked = [raw.send_call("blocks", 0.3) for _ in range(3)]
    assert bystander.call("echo", "meanwhile")["r"] == "meanwhile"
    assert raw.call("echo", "behind it")["r"] == "behind it"
    assert sorted(raw.receive()["u"] for _ in blocked) == sorted(blocked)


def test_a_u_that_is_under_way_is_not_taken_twice(raw: Raw) -> None:
    gate = unique()
    raw.send_call("wait_at", gate, u="same")
    assert raw.call("echo", 1, u="same")["error"]["code"] == "PROTOCOL_INVALID_MESSAGE"
    raw.send_call("open_gate", gate)
    assert {raw.receive()["u"] for _ in range(2)} >= {"same"}


def test_10000_open_requests_are_refused_past_the_limit_and_the_others_are_answered(plain: Raw, bystander: Raw) -> None:
    gate, sent = unique(), 10_000
    for number in range(sent):
        plain.send_call("wait_at", gate, u=f"r{number}")
    refused = [plain.receive() for _ in range(sent - 8_192)]
    assert {reply["error"]["code"] for reply in refused} == {"RESOURCE_EXHAUSTED"}
    assert {reply["error"]["details"]["limit"] for reply in refused} == {8_192}
    assert {reply["error"]["retryable"] for reply in refused} == {True}
    assert bystander.call("open_gate", gate)["error"] is None
    answered = [plain.receive() for _ in range(8_192)]
    assert {reply["r"] for reply in answered} == {gate}
    assert len({reply["u"] for reply in answered + refused}) == sent


# R-R8: built in.


def test_echo_and_echos_are_there(raw: Raw) -> None:
    assert raw.call("echo", [1])["r"] == [1]
    assert raw.call("mpreg.echo", [1])["r"] == [1]
    assert raw.call("echos", 1, "a")["r"] == [1, "a"]


def test_functions_are_listed_with_docs_schemas_resources_and_providers(raw: Raw) -> None:
    functions = {each["name"]: each for each in raw.call("mpreg.functions")["r"]}
    assert functions["render"]["resources"] == ["eu", "gpu"]
    assert functions["distance"]["doc"] == "How far a taxi drives."
    assert functions["distance"]["providers"] == ["conformance"]
    assert functions["add"]["arguments"]["properties"]["a"]["type"] == "integer"
    assert functions["add"]["result"]["type"] == "integer"
    assert {"echo", "echos", "mpreg.functions", "mpreg.nodes", "mpreg.stats"} <= functions.keys()


def test_nodes_say_who_they_are(raw: Raw) -> None:
    [node] = raw.call("mpreg.nodes")["r"]
    assert node["name"] == "conformance"
    assert node["listeners"].keys() == {"ws", "wss", "tcp", "tcps"}


def test_stats_count_requests(raw: Raw) -> None:
    before = raw.call("mpreg.stats")["r"]["rpc"]
    raw.call("echo", 1)
    raw.call("raises", "x")
    after = raw.call("mpreg.stats")["r"]["rpc"]
    assert after["failed_requests"] > before["failed_requests"]
    assert after["successful_requests"] >= before["successful_requests"] + 2

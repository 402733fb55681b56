"""R-R1 to R-R3: the plan of a request against an evaluator that could not be simpler."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.errors import MpregError
from mpreg.rpc.plan import COMMANDS_MAX, NAME_LENGTH_MAX, Call, Plan


def size_of(value: Any) -> int:
    return len(json.dumps(value))


def evaluate(calls: list[Call]) -> dict[str, Any]:
    """Every command after those that it names, one after the other; the function returns its arguments."""
    names = [call.name for call in calls]
    results: dict[str, Any] = {}

    def substitute(own: str, value: Any) -> Any:
        if isinstance(value, str):
            parts = value.split(".")
            for cut in range(len(parts), 0, -1):
                head = ".".join(parts[:cut])
                if head in names:
                    return value if head == own else fetch(head, parts[cut:])
            return value
        if isinstance(value, dict):
            if set(value) == {"$literal"}:
                return value["$literal"]
            if set(value) == {"$ref"}:
                return substitute("", value["$ref"])
            return {key: substitute(own, item) for key, item in value.items()}
        if isinstance(value, list):
            return [substitute(own, item) for item in value]
        return value

    def fetch(head: str, path: list[str]) -> Any:
        value = results[head]
        for step in path:
            value = value[int(step)] if isinstance(value, list) else value[step]
        return value

    for call in calls:  # the strategy below makes them refer to earlier ones only
        results[call.name] = {
            "args": [substitute(call.name, arg) for arg in call.args],
            "kwargs": {key: substitute(call.name, value) for key, value in call.kwargs.items()},
        }
    return results


def run(calls: list[Call], order: Any, intermediate: bool = False) -> dict[str, Any]:
    """The plan, with functions that return their arguments and finish in the order that `order` picks."""
    plan = Plan(calls, size_of)
    running = plan.start()
    results: dict[str, Any] = {}
    while running:
        name = running.pop(order(len(running)))
        args, kwargs = plan.arguments(name)
        results[name] = {"args": args, "kwargs": kwargs}
        running += plan.finish(name, results[name], size_of(results[name]))
    assert plan.is_done
    return {name: results[name] for name in plan.answer(intermediate)}


NAMES = ["a", "b", "a.b", "c", "last one", "ü"]


@st.composite
def requests(draw: st.DrawFn) -> list[Call]:
    """Two to six commands; a reference goes to an earlier command, with a path that its result has."""
    calls: list[Call] = []
    names = draw(st.permutations(NAMES).map(lambda names: names[: max(2, len(names) - 1)]))
    count = draw(st.integers(2, len(names)))
    for at in range(count):
        earlier = names[:at]
        paths = [name + path for name in earlier for path in ("", ".args", ".kwargs", ".args.0", ".kwargs.k")]
        references = st.sampled_from(paths) if paths else st.nothing()
        later = st.sampled_from(NAMES)
        leaf = st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-5, 5),
            references,
            references.map(lambda path: {"$ref": path}),
            later.map(lambda name: {"$literal": name}),
            st.sampled_from(["plain", "x.y", "", ".", "args.0", names[at]]),
        )
        value = st.recursive(
            leaf,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("kl"), inner),
            max_leaves=6,
        )
        args = [draw(value), *draw(st.lists(value, max_size=2))]
        calls.append(Call(names[at], args, {"k": draw(value)}))
    return calls


@given(requests(), st.data())
def test_a_plan_gives_what_running_the_commands_one_by_one_gives(calls: list[Call], data: st.DataObject) -> None:
    def order(count: int) -> int:
        return data.draw(st.integers(0, count - 1))

    assert run(calls, order, intermediate=True) == evaluate(calls)


@given(st.lists(st.lists(st.integers(0, 7), max_size=4), min_size=2, max_size=8), st.data())
def test_commands_in_a_circle_are_refused_and_all_others_finish(edges: list[list[int]], data: st.DataObject) -> None:
    count = len(edges)
    needs = {at: {need for need in wants if need < count} for at, wants in enumerate(edges)}
    calls = [Call(f"n{at}", [{"$ref": f"n{need}"} for need in sorted(needs[at])], {}) for at in needs]

    left = dict(needs)
    while free := [at for at, wants in left.items() if not wants & left.keys()]:
        for at in free:
            del left[at]

    if left:
        with pytest.raises(MpregError) as caught:
            Plan(calls, size_of)
        assert caught.value.code == "RPC_CYCLE"
        assert set(caught.value.details["commands"]) <= {f"n{at}" for at in left}
    else:
        got = run(calls, lambda running: data.draw(st.integers(0, running - 1)))
        needed = set().union(*needs.values())
        assert set(got) == {f"n{at}" for at in needs if at not in needed}


def test_a_command_can_run_as_soon_as_its_inputs_are_there() -> None:
    plan = Plan([Call("slow", [], {}), Call("quick", [], {}), Call("after quick", ["quick"], {})], size_of)
    assert plan.start() == ["slow", "quick"]
    assert plan.finish("quick", 1, 1) == ["after quick"]
    assert plan.finish("after quick") == []
    assert not plan.is_done
    assert plan.finish("slow") == []
    assert plan.is_done
    assert plan.answer() == ["slow", "after quick"]
    assert plan.answer(intermediate=True) == ["slow", "quick", "after quick"]


def test_the_longest_name_wins_where_a_reference_can_be_read_in_two_ways() -> None:
    plan = Plan([Call("a", [], {}), Call("a.b", [], {}), Call("c", ["a.b", "a.b.c", "a.c"], {})], size_of)
    plan.start()
    plan.finish("a", {"b": "the path", "c": 3}, 1)
    plan.finish("a.b", {"c": 2}, 1)
    assert plan.arguments("c") == ([{"c": 2}, 2, 3], {})


def test_a_string_in_a_request_of_one_command_is_never_a_reference() -> None:
    plan = Plan([Call("a", ["a", "a.b", {"$ref": "a"}, {"$literal": 1}], {"k": "a"})], size_of)
    assert plan.start() == ["a"]
    assert plan.arguments("a") == (["a", "a.b", {"$ref": "a"}, {"$literal": 1}], {"k": "a"})


def test_a_commands_own_name_is_not_a_reference_unless_it_says_so() -> None:
    plan = Plan([Call("a", ["a", "a.x"], {}), Call("b", [], {})], size_of)
    assert plan.arguments("a") == (["a", "a.x"], {})
    with pytest.raises(MpregError) as caught:
        Plan([Call("a", [{"$ref": "a"}], {}), Call("b", [], {})], size_of)
    assert caught.value.code == "RPC_CYCLE"


def test_what_is_literal_is_not_looked_into() -> None:
    plan = Plan([Call("a", [{"$literal": {"$ref": "b"}}, {"$literal": "b"}], {}), Call("b", [], {})], size_of)
    assert plan.arguments("a") == ([{"$ref": "b"}, "b"], {})


@pytest.mark.parametrize(
    ("result", "path", "missing"),
    [
        ({"x": 1}, "y", "y"),
        ({"x": 1}, "x.y", "y"),
        ([1, 2], "2", "2"),
        ([1, 2], "-1", "-1"),
        ([1, 2], "1.5", "5"),
        ([1, 2], "²", "²"),
        ([1, 2], "99999999999999999999", "99999999999999999999"),
        ("text", "0", "0"),
        (None, "x", "x"),
        ({"": 1}, "x.", "x"),
    ],
)
def test_a_path_that_the_result_does_not_have_is_named(result: Any, path: str, missing: str) -> None:
    plan = Plan([Call("a", [], {}), Call("b", [f"a.{path}"], {})], size_of)
    plan.finish("a", result, 1)
    with pytest.raises(MpregError) as caught:
        plan.arguments("b")
    assert caught.value.code == "RPC_REFERENCE_NOT_FOUND"
    assert caught.value.details == {"reference": f"a.{path}", "missing": missing}


def test_an_explicit_reference_to_no_command_is_refused_before_anything_runs() -> None:
    with pytest.raises(MpregError) as caught:
        Plan([Call("a", [{"$ref": "nobody.x"}], {}), Call("b", [], {})], size_of)
    assert caught.value.code == "RPC_REFERENCE_NOT_FOUND"
    assert caught.value.details == {"reference": "nobody.x", "command": "a"}


@pytest.mark.parametrize(
    ("names", "path"),
    [
        ([], "$.cmds"),
        (["a"] * 2, "$.cmds[1].name"),
        (["a", ""], "$.cmds[1].name"),
        (["x" * (NAME_LENGTH_MAX + 1)], "$.cmds[0].name"),
        ([str(n) for n in range(COMMANDS_MAX + 1)], "$.cmds"),
    ],
    ids=["none", "twice", "empty", "long", "many"],
)
def test_a_request_that_cannot_be_planned_is_refused(names: list[str], path: str) -> None:
    with pytest.raises(MpregError) as caught:
        Plan([Call(name, [], {}) for name in names], size_of)
    assert caught.value.code == "RPC_INVALID_REQUEST"
    assert caught.value.details["path"] == path


def test_a_chain_of_as_many_commands_as_allowed_runs() -> None:
    calls = [Call("0", [], {})] + [Call(str(n), [str(n - 1)], {}) for n in range(1, COMMANDS_MAX)]
    plan = Plan(list(reversed(calls)), size_of)
    for n in range(COMMANDS_MAX):
        assert plan.finish(str(n), n, 1) == ([str(n + 1)] if n + 1 < COMMANDS_MAX else [])
    assert plan.answer() == [str(COMMANDS_MAX - 1)]


def test_a_very_long_string_that_is_full_of_dots_is_looked_up_in_bounded_time() -> None:
    plan = Plan([Call("a", ["x." * 1_000_000, "a" * 1_000_000], {}), Call("b", [], {})], size_of)
    assert plan.start() == ["a", "b"]


def test_arguments_nested_too_deeply_are_refused() -> None:
    deep: Any = "b"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(MpregError) as caught:
        Plan([Call("a", [deep], {}), Call("b", [], {})], size_of)
    assert caught.value.code == "RPC_INVALID_REQUEST"


def test_results_that_multiply_are_stopped_before_they_fill_the_memory() -> None:
    calls = [Call("0", ["x" * 100], {}), *(Call(str(n), [str(n - 1)] * 10, {}) for n in range(1, 20))]
    plan = Plan(calls, size_of, arguments_bytes_max=1_000_000)
    for n in range(4):
        args, _ = plan.arguments(str(n))
        plan.finish(str(n), args, size_of(args))
    with pytest.raises(MpregError) as caught:
        plan.arguments("4")
    assert caught.value.code == "RESOURCE_MESSAGE_TOO_LARGE"
    assert caught.value.details == {"limit": 1_000_000}


def test_a_part_of_a_large_result_counts_for_itself() -> None:
    plan = Plan([Call("a", [], {}), Call("b", ["a.small", "a.small"], {})], size_of, arguments_bytes_max=100)
    plan.finish("a", {"small": 1, "large": "x" * 1000}, 1017)
    assert plan.arguments("b") == ([1, 1], {})

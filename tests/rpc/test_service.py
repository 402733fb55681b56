"""Each request gets exactly one answer, in whatever way it ends, and nothing is left of it."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.rpc.sessions import Bench, RecordingLink, cmd

from mpreg.errors import MpregError
from mpreg.rpc import RpcLimits
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import ErrorBody
from mpreg.wire.rpc import Command

pytestmark = pytest.mark.anyio


async def echo(value: Any) -> Any:
    return value


async def add(a: int, b: int) -> int:
    return a + b


def add_in_thread(a: int, b: int) -> int:
    assert threading.current_thread() is not threading.main_thread()
    return a + b


class Gate:
    """A function that waits until the test lets it go on, and counts what happens to it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun = 0
        self.cancelled = 0
        self.finished = 0

    async def wait(self, value: Any = None) -> Any:
        self.begun += 1
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.finished += 1
        return value


# One command.


@pytest.mark.parametrize("encoding", list(Encoding))
async def test_the_answer_to_one_command_is_its_bare_result(encoding: Encoding) -> None:
    bench = Bench(echo, add)
    assert await bench.call("echo", {"a": [1, None]}, encoding=encoding) == {"a": [1, None]}
    assert await bench.call("add", 1, b=2, encoding=encoding) == 3
    await bench.quiet()


async def test_a_function_that_does_not_wait_is_answered_before_the_loop_turns() -> None:
    bench = Bench(echo)
    loop = asyncio.get_running_loop()
    counts: list[int] = []
    loop.call_soon(lambda: (bench.send(cmd("echo", 1)), counts.append(len(bench.link.sent))))
    await asyncio.sleep(0)
    assert counts == [1]
    assert len(bench.service) == 0


async def test_a_sync_function_runs_in_a_thread() -> None:
    bench = Bench(add_in_thread)
    assert await bench.call("add_in_thread", 1, 2) == 3
    await bench.quiet()


async def test_the_answer_carries_u_and_a_null_error() -> None:
    bench = Bench(echo)
    bench.send(cmd("echo", 1), u="ü" * 100)
    await bench.answers(1)
    assert msgspec.json.decode(bench.link.sent[0][0]) == {"role": "rpc-response", "u": "ü" * 100, "r": 1, "error": None}


async def test_an_unknown_function_and_unknown_resources_are_told_apart() -> None:
    bench = Bench()
    bench.registry.add(echo, locs=["gpu", "eu"])
    unknown = await bench.call("nobody")
    assert (unknown.code, unknown.command, unknown.details) == ("RPC_FUNCTION_NOT_FOUND", "c", {"function": "nobody"})
    missing = await bench.request(cmd("echo", 1, locs=("gpu", "us")))
    assert (missing.code, missing.details["locs"]) == ("RPC_RESOURCE_NOT_FOUND", ["gpu", "us"])
    assert await bench.request(cmd("echo", 1, locs=("eu",))) == 1
    assert await bench.request(cmd("echo", 1)) == 1


async def test_a_wrong_argument_is_named() -> None:
    bench = Bench(add)
    error = await bench.call("add", 1, "2")
    assert (error.code, error.details) == ("RPC_INVALID_ARGUMENT", {"path": "args[1]"})
    assert error.state_changed is False


@pytest.mark.parametrize("timeout_ms", [0, -1, 86_400_001, 1e300])
async def test_a_timeout_outside_its_range_is_refused(timeout_ms: float) -> None:
    bench = Bench(echo)
    error = await bench.request(cmd("echo", 1), timeout_ms=timeout_ms)
    assert (error.code, error.details["path"]) == ("RPC_INVALID_REQUEST", "$.timeout_ms")


# Functions that misbehave.


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Quiet(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize(
    ("error", "type_", "message"),
    [
        (ValueError("bad\ntext"), "ValueError", "bad\ntext"),
        (KeyError("k"), "KeyError", "'k'"),
        (Broken(), "Broken", "(the exception has no readable text)"),
        (ValueError("\ud800"), "ValueError", "?"),
        (ValueError("x" * 50_000), "ValueError", "x" * 10_000),
        (SystemExit(3), "SystemExit", "3"),
        (Quiet("q"), "Quiet", "q"),
        (StopIteration("s"), "RuntimeError", None),
        (StopAsyncIteration("s"), None, None),
        (asyncio.CancelledError("c"), "CancelledError", "c"),
        (TimeoutError("t"), "TimeoutError", "t"),
        (GeneratorExit(), "GeneratorExit", ""),
        (ExceptionGroup("g", [ValueError("1")]), "ExceptionGroup", "g (1 sub-exception)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_what_a_function_raises_is_named(in_thread: bool, error: Any, type_: Any, message: Any) -> None:
    async def on_loop() -> None:
        raise error

    def in_a_thread() -> None:
        raise error

    bench = Bench(in_a_thread if in_thread else on_loop)
    body = await bench.call("in_a_thread" if in_thread else "on_loop")
    assert body.code == "RPC_FUNCTION_FAILED"
    assert type_ in (None, body.type)
    assert message in (None, body.message)
    assert body.traceback is msgspec.UNSET
    assert body.state_changed is None
    assert body.retryable is False
    await bench.quiet()


async def test_a_traceback_is_sent_only_by_a_node_that_runs_in_debug() -> None:
    async def fail() -> None:
        raise ValueError("here")

    bench = Bench(fail, debug=True)
    body = await bench.call("fail")
    assert 'raise ValueError("here")' in body.traceback


async def test_a_function_that_raises_an_error_of_ours_chooses_its_code() -> None:
    async def refuse() -> None:
        raise MpregError("SHOP_SOLD_OUT", "none left", retryable=True, article=7)

    bench = Bench(refuse)
    body = await bench.call("refuse")
    assert (body.code, body.message, body.details, body.retryable) == (
        "SHOP_SOLD_OUT",
        "none left",
        {"article": 7},
        True,
    )


async def test_an_error_whose_details_have_no_encoding_is_still_answered() -> None:
    kept = MpregError("SHOP_SOLD_OUT", "none left", article=object())

    async def refuse() -> None:
        raise kept

    bench = Bench(refuse)
    body = await bench.call("refuse")
    assert (body.code, body.details) == ("SHOP_SOLD_OUT", msgspec.UNSET)
    await bench.quiet()


async def test_an_error_that_is_too_large_is_sent_without_its_details() -> None:
    async def refuse() -> None:
        raise MpregError("SHOP_SOLD_OUT", "none left" * 10_000, article="x" * 50_000)

    bench = Bench(refuse, message_bytes_max=20_000)
    body = await bench.call("refuse")
    assert body.code == "SHOP_SOLD_OUT"
    assert len(body.message) == 10_000


def recursive() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Trap:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no fields")


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(
    "result",
    [object(), {1, object()}, {(1, 2): 3, "x": object()}, "\ud800", recursive(), 1j, Trap(), print, weakref.ref(Gate)],
)
async def test_a_result_that_has_no_encoding_is_an_error(result: Any, encoding: Encoding) -> None:
    async def give() -> Any:
        return result

    bench = Bench(give)
    body = await bench.call("give", encoding=encoding)
    assert body.code == "RPC_UNENCODABLE_RESULT"
    await bench.quiet()


async def test_a_result_that_is_too_large_to_be_sent_is_an_error() -> None:
    async def give() -> str:
        return "x" * 2000

    bench = Bench(give, message_bytes_max=1000)
    body = await bench.call("give")
    assert body.code == "RESOURCE_MESSAGE_TOO_LARGE"
    assert bench.service.statistics.failed_requests == 1
    assert bench.service.statistics.successful_requests == 0


async def test_a_sync_function_may_return_an_awaitable() -> None:
    def later(value: int) -> Any:
        return echo(value)

    bench = Bench(later)
    assert await bench.call("later", 3) == 3


# Requests side by side.


async def test_a_function_that_waits_does_not_hold_up_the_next_request_of_its_connection() -> None:
    gate = Gate()
    bench = Bench(gate.wait, echo)
    bench.send(cmd("wait", "late"), u="slow")
    bench.send(cmd("echo", "early"), u="quick")
    assert [answer.u for answer in await bench.answers(1)] == ["quick"]
    gate.open.set()
    assert [answer.u for answer in await bench.answers(2)] == ["quick", "slow"]
    await bench.quiet()


async def test_threads_that_are_blocked_do_not_hold_up_async_functions_nor_other_threads() -> None:
    release = threading.Event()

    def block() -> str:
        assert release.wait(60)
        return "released"

    bench = Bench(block, echo, add_in_thread, limits=RpcLimits(threads_max=2))
    bench.send(cmd("block"), u="blocked")
    bench.send(cmd("add_in_thread", 1, 2), u="thread")
    bench.send(cmd("echo", 1), u="loop")
    assert {answer.u for answer in await bench.answers(2)} == {"thread", "loop"}
    release.set()
    assert [answer.u for answer in await bench.answers(3)][2] == "blocked"
    await bench.quiet()


async def test_a_second_request_with_the_same_u_is_refused_while_the_first_runs() -> None:
    gate = Gate()
    bench = Bench(gate.wait)
    bench.send(cmd("wait", 1), u="same")
    await asyncio.sleep(0)
    bench.send(cmd("wait", 2), u="same")
    refused = await bench.answer()
    assert refused.error is not None
    assert (refused.error.code, refused.error.details) == ("PROTOCOL_INVALID_MESSAGE", {"path": "$.u"})
    gate.open.set()
    assert bytes((await bench.answer()).r) == b"1"
    assert gate.begun == 1
    await bench.quiet()
    bench.send(cmd("wait", 3), u="same")
    assert bytes((await bench.answer()).r) == b"3"


async def test_the_same_u_on_two_connections_is_two_requests() -> None:
    gate = Gate()
    bench = Bench(gate.wait)
    other = Session(RecordingLink())
    bench.send(cmd("wait", 1), u="same")
    bench.send(cmd("wait", 2), u="same", session=other)
    gate.open.set()
    assert bytes((await bench.answer()).r) == b"1"
    await other.link.until(1)
    await bench.quiet()


async def test_ten_thousand_open_requests_are_all_answered_those_over_the_limit_at_once() -> None:
    gate = Gate()
    limits = RpcLimits(requests_per_connection_max=8000)
    bench = Bench(gate.wait, limits=limits)
    for number in range(10_000):
        bench.send(cmd("wait", number), u=str(number))
    refused = await bench.answers(2000)
    assert {answer.error.code for answer in refused if answer.error} == {"RESOURCE_EXHAUSTED"}
    assert len(refused) == 2000
    assert all(answer.error and answer.error.details == {"limit": 8000} for answer in refused)
    assert len(bench.service) == 8000
    gate.open.set()
    answers = await bench.answers(10_000)
    assert len({answer.u for answer in answers}) == 10_000
    await bench.quiet()


async def test_the_limit_of_a_node_counts_all_its_connections_and_what_was_answered_but_still_runs() -> None:
    stubborn = asyncio.Event()

    async def ignore_cancel() -> None:
        while not stubborn.is_set():
            try:
                await stubborn.wait()
            except asyncio.CancelledError:
                continue

    bench = Bench(ignore_cancel, limits=RpcLimits(requests_max=2))
    bench.send(cmd("ignore_cancel"), u="1")
    bench.send(cmd("ignore_cancel"), u="2", session=Session(RecordingLink()))
    bench.cancel("1")
    assert [answer.error.code for answer in await bench.answers(1) if answer.error] == ["RPC_CANCELLED"]
    bench.send(cmd("ignore_cancel"), u="3")
    assert [answer.error.code for answer in await bench.answers(2) if answer.error][1] == "RESOURCE_EXHAUSTED"
    stubborn.set()
    await bench.quiet()


async def test_calls_that_would_wait_for_a_thread_too_long_a_line_are_refused() -> None:
    release = threading.Event()

    def block() -> None:
        assert release.wait(60)

    bench = Bench(block, limits=RpcLimits(threads_max=1, threads_waiting_max=2))
    begun = 0
    while bench.threads.busy == 0:
        bench.send(cmd("block"), u=f"u{begun}") if begun == 0 else await asyncio.sleep(0)
        begun += 1
    for number in range(3):
        bench.send(cmd("block"), u=f"more{number}")
    (refused,) = await bench.answers(1)
    assert refused.u == "more2"
    assert refused.error is not None
    assert (refused.error.code, refused.error.details) == ("RESOURCE_EXHAUSTED", {"limit": 2})
    release.set()
    await bench.answers(4)
    await bench.quiet()


# Deadlines, cancellation, connections that go.


async def test_a_request_that_takes_too_long_is_answered_and_cancelled() -> None:
    gate = Gate()
    bench = Bench(gate.wait)
    bench.send(cmd("wait"), timeout_ms=500)
    await asyncio.sleep(0)
    bench.clock.advance(0.49)
    assert bench.link.sent == []
    bench.clock.advance(0.03)
    body = (await bench.answer()).error
    assert body is not None
    assert (body.code, body.details, body.retryable) == ("TIMEOUT_EXCEEDED", {"timeout_ms": 500.0}, True)
    assert body.state_changed is None
    await bench.quiet()
    assert gate.cancelled == 1
    assert bench.link.sent == []


async def test_the_timeout_is_thirty_seconds_if_the_request_does_not_say() -> None:
    gate = Gate()
    bench = Bench(gate.wait)
    bench.send(cmd("wait"))
    bench.clock.advance(29.9)
    assert bench.link.sent == []
    bench.clock.advance(0.2)
    assert (await bench.answer()).error.code == "TIMEOUT_EXCEEDED"  # type: ignore[union-attr]
    await bench.quiet()


async def test_a_function_that_never_returns_from_its_thread_is_answered_at_its_deadline() -> None:
    release = threading.Event()

    def block() -> None:
        assert release.wait(60)

    bench = Bench(block, add_in_thread)
    bench.send(cmd("block"), timeout_ms=100)
    bench.clock.advance(1)
    assert (await bench.answer()).error.code == "TIMEOUT_EXCEEDED"  # type: ignore[union-attr]
    await bench.quiet()
    assert await bench.call("add_in_thread", 1, 1) == 2
    release.set()
    while bench.threads.busy:
        await asyncio.sleep(0)
    assert bench.link.sent == []


async def test_a_call_that_still_waits_for_a_thread_when_it_is_cancelled_never_runs() -> None:
    release, ran = threading.Event(), []

    def block() -> None:
        assert release.wait(60)

    def late() -> None:
        ran.append(1)

    bench = Bench(block, late, add_in_thread, limits=RpcLimits(threads_max=1))
    bench.send(cmd("block"), u="block")
    bench.send(cmd("late"), u="late")
    bench.cancel("late")
    assert (await bench.answer()).error.code == "RPC_CANCELLED"  # type: ignore[union-attr]
    release.set()
    assert (await bench.answer()).u == "block"
    assert await bench.call("add_in_thread", 1, 1) == 2
    assert ran == []


async def test_a_request_can_be_cancelled_once() -> None:
    gate = Gate()
    bench = Bench(gate.wait, echo)
    u = bench.send(cmd("wait"))
    bench.cancel("another")
    bench.cancel(u)
    bench.cancel(u)
    body = (await bench.answer()).error
    assert body is not None
    assert body.code == "RPC_CANCELLED"
    await bench.quiet()
    assert gate.begun == gate.cancelled
    assert bench.link.sent == []
    assert await bench.call("echo", 1) == 1


async def test_a_connection_that_goes_takes_its_requests_with_it_and_no_others() -> None:
    gate = Gate()
    bench = Bench(gate.wait)
    other = Session(RecordingLink())
    for number in range(5):
        bench.send(cmd("wait", number))
    bench.send(cmd("wait", 9), session=other)
    await asyncio.sleep(0)
    bench.service.closed(bench.session)
    bench.service.closed(bench.session)
    while len(bench.service) > 1:
        await asyncio.sleep(0)
    assert gate.cancelled == 5
    gate.open.set()
    await other.link.until(1)
    await bench.quiet()
    assert bench.link.sent == []
    assert bench.service.statistics.failed_requests == 5


async def test_a_function_that_finishes_although_it_was_cancelled_is_not_answered_twice() -> None:
    gate = asyncio.Event()

    async def stubborn() -> str:
        while True:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
            return "done"

    bench = Bench(stubborn)
    u = bench.send(cmd("stubborn"))
    await asyncio.sleep(0)
    bench.cancel(u)
    gate.set()
    await bench.quiet()
    assert len(bench.link.sent) == 1


# Several commands.


async def test_commands_use_each_others_results() -> None:
    bench = Bench(add, echo)
    answer = await bench.request(
        cmd("add", 1, 2, name="sum"),
        cmd("echo", {"value": ["sum", 10]}, name="box"),
        cmd("add", "box.value.0", {"$ref": "box.value.1"}, name="total"),
    )
    assert answer == {"total": 13}
    await bench.quiet()


async def test_intermediate_results_come_on_request() -> None:
    bench = Bench(add)
    cmds = (cmd("add", 1, 2, name="sum"), cmd("add", "sum", 1, name="total"))
    assert await bench.request(*cmds, intermediate=True) == {"sum": 3, "total": 4}
    assert await bench.request(cmds[0], intermediate=True) == {"sum": 3}


async def test_independent_commands_run_at_the_same_time() -> None:
    gate = Gate()
    bench = Bench(gate.wait, echo)
    bench.send(cmd("wait", 1, name="a"), cmd("wait", 2, name="b"), cmd("echo", "a", name="c"))
    while gate.begun < 2:
        await asyncio.sleep(0)
    gate.open.set()
    assert codec.decode_value((await bench.answer()).r, Encoding.JSON) == {"b": 2, "c": 1}
    await bench.quiet()


async def test_results_arrive_at_other_commands_as_the_wire_would_bring_them() -> None:
    class Point(msgspec.Struct):
        x: int

    async def make() -> Point:
        return Point(3)

    async def take(point: Point, x: int) -> list[Any]:
        return [type(point).__name__, point.x, x]

    take.__annotations__.update(point=Point)
    bench = Bench(make, take)
    assert await bench.request(cmd("make", name="p"), cmd("take", "p", "p.x", name="t")) == {"t": ["Point", 3, 3]}


async def test_when_one_command_fails_the_request_fails_and_what_has_not_started_does_not_start() -> None:
    started = []
    gate = Gate()

    async def fail() -> None:
        raise ValueError("no")

    async def note(value: Any = None) -> None:
        started.append(value)

    bench = Bench(fail, note, gate.wait)
    body = await bench.request(
        cmd("wait", 1, name="slow"),
        cmd("fail", name="bad"),
        cmd("note", "bad", name="after"),
        cmd("note", "slow", name="after slow"),
    )
    assert (body.code, body.type, body.command) == ("RPC_FUNCTION_FAILED", "ValueError", "bad")
    await bench.quiet()
    assert started == []
    assert gate.cancelled == gate.begun


async def test_a_command_that_cancels_itself_fails_the_request() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    bench = Bench(give_up, echo)
    body = await bench.request(cmd("give_up", name="a"), cmd("echo", 1, name="b"))
    assert (body.code, body.type, body.command) == ("RPC_FUNCTION_FAILED", "CancelledError", "a")
    await bench.quiet()


@pytest.mark.parametrize(
    ("cmds", "code", "command"),
    [
        ((), "RPC_INVALID_REQUEST", None),
        ((cmd("note", name="a"), cmd("note", name="a")), "RPC_INVALID_REQUEST", None),
        ((cmd("note", name="a"), cmd("note", "c", name="b"), cmd("note", "b", name="c")), "RPC_CYCLE", None),
        ((cmd("note", name="a"), cmd("nobody", name="b")), "RPC_FUNCTION_NOT_FOUND", "b"),
        ((cmd("note", name="a"), cmd("note", name="b", locs=("x",))), "RPC_RESOURCE_NOT_FOUND", "b"),
        ((cmd("note", name="a"), cmd("note", {"$ref": "z"}, name="b")), "RPC_REFERENCE_NOT_FOUND", "b"),
        ((cmd("note", name="a"), Command("b", "note", Raw(b'"text"'))), "RPC_INVALID_ARGUMENT", "b"),
        ((cmd("note", name="a"), Command("b", "note", Raw(b"[]"), Raw(b"[]"))), "RPC_INVALID_ARGUMENT", "b"),
        (tuple(cmd("note", name=str(n)) for n in range(1001)), "RPC_INVALID_REQUEST", None),
    ],
    ids=["none", "twice", "cycle", "function", "resource", "reference", "args", "kwargs", "many"],
)
async def test_a_request_that_cannot_work_is_refused_before_anything_runs(
    cmds: tuple[Command, ...], code: str, command: str | None
) -> None:
    ran = []

    async def note(value: Any = None) -> None:
        ran.append(value)

    bench = Bench(note)
    body = await bench.request(*cmds)
    assert isinstance(body, ErrorBody)
    assert body.code == code
    assert body.command == (msgspec.UNSET if command is None else command)
    assert body.state_changed is False
    assert ran == []
    await bench.quiet()


async def test_a_path_that_a_result_does_not_have_fails_the_command_that_refers_to_it() -> None:
    bench = Bench(echo)
    body = await bench.request(cmd("echo", {"x": 1}, name="a"), cmd("echo", "a.y", name="b"))
    assert (body.code, body.command) == ("RPC_REFERENCE_NOT_FOUND", "b")
    assert body.details == {"reference": "a.y", "missing": "y"}


async def test_results_that_multiply_end_with_an_error() -> None:
    bench = Bench(echo, limits=RpcLimits(arguments_bytes_max=100_000))
    cmds = [cmd("echo", "x" * 100, name="0"), *(cmd("echo", [str(n - 1)] * 10, name=str(n)) for n in range(1, 30))]
    body = await bench.request(*cmds)
    assert (body.code, body.details) == ("RESOURCE_MESSAGE_TOO_LARGE", {"limit": 100_000})
    await bench.quiet()


async def test_the_deadline_of_a_request_covers_all_its_commands() -> None:
    gate = Gate()
    bench = Bench(gate.wait, echo)
    bench.send(cmd("wait", name="a"), cmd("echo", "a", name="b"), timeout_ms=100)
    while gate.begun < 1:
        await asyncio.sleep(0)
    bench.clock.advance(0.2)
    assert (await bench.answer()).error.code == "TIMEOUT_EXCEEDED"  # type: ignore[union-attr]
    await bench.quiet()
    assert gate.cancelled == 1


# The node stops.


async def test_a_node_that_stops_lets_what_runs_finish_and_takes_nothing_new() -> None:
    gate = Gate()
    bench = Bench(gate.wait, echo)
    bench.send(cmd("wait", 1), u="old")
    draining = asyncio.ensure_future(bench.service.drain(60))
    await asyncio.sleep(0)
    bench.send(cmd("echo", 1), u="new")
    (refused,) = await bench.answers(1)
    assert (refused.u, refused.error and refused.error.code) == ("new", "RESOURCE_SHUTTING_DOWN")
    assert not draining.done()
    gate.open.set()
    assert [answer.u for answer in await bench.answers(2)] == ["new", "old"]
    await draining
    await bench.quiet()


async def test_what_runs_longer_than_the_grace_time_is_ended_and_answered() -> None:
    gate = Gate()
    bench = Bench(gate.wait)
    bench.send(cmd("wait", 1))
    await asyncio.sleep(0)
    await bench.service.drain(0)
    body = (await bench.answer()).error
    assert body is not None
    assert (body.code, body.state_changed) == ("RESOURCE_SHUTTING_DOWN", None)
    assert gate.cancelled == gate.begun
    await bench.quiet()


async def test_requests_are_counted_by_how_they_ended() -> None:
    gate = Gate()
    bench = Bench(echo, gate.wait)
    await bench.call("echo", 1)
    await bench.call("echo")
    await bench.call("nobody")
    bench.send(cmd("wait"))
    bench.service.closed(bench.session)
    report = bench.service.statistics.report()
    assert (report["total_requests"], report["successful_requests"], report["failed_requests"]) == (4, 1, 3)
    assert 0 < report["p95_latency_ms"] <= report["p99_latency_ms"]
    await bench.quiet()


async def test_a_fault_of_the_node_itself_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty:
        waits = False

        def place(self, fun: str, locs: Any) -> Any:
            return self

        async def call(self, *args: Any) -> Any:
            raise ZeroDivisionError

    bench = Bench(echo)
    bench.service._placement = Faulty()  # type: ignore[assignment]
    with caplog.at_level(logging.ERROR):
        body = await bench.call("echo", 1)
    assert body.code == "PROTOCOL_INTERNAL_ERROR"
    assert "ZeroDivisionError" not in body.message
    assert "ZeroDivisionError" in caplog.text
    await bench.quiet()

"""What a client does with a node that answers late, wrongly, not at all, or goes away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.client.scripted import FarEnd, Scripted

from mpreg.client import Client, command, connect
from mpreg.errors import ProtocolError, ResourceError, RpcError, TimedOut, TransportError
from mpreg.transport import Accept, Link
from mpreg.wire.encoding import Encoding
from mpreg.wire.lifecycle import Goodbye
from mpreg.wire.rpc import InternalAnswer, Rpc, RpcCancel, RpcResponse

pytestmark = pytest.mark.anyio


@pytest.fixture
async def node() -> Scripted:
    return Scripted()


@pytest.fixture
async def client(node: Scripted) -> AsyncIterator[Client]:
    async with connect(node) as client:
        yield client
        assert client.calls_waiting == 0


@pytest.fixture
async def far(node: Scripted, client: Client) -> FarEnd:
    return await node.attached(1)


def called(client: Client, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(client.call("f", *args, **kwargs))


async def test_answers_find_their_calls_in_any_order(client: Client, far: FarEnd) -> None:
    calls = [called(client, number) for number in range(10)]
    requests = [await far.receive() for _ in calls]
    for request in reversed(requests):
        far.answer(request, msgspec.msgpack.decode(request.cmds[0].args)[0])
    assert await asyncio.gather(*calls) == list(range(10))
    assert client.calls_open == 0


async def test_an_answer_without_a_call_is_ignored(client: Client, far: FarEnd) -> None:
    far.send(RpcResponse("nobody", msgspec.Raw(b"\xc0")))
    call = called(client)
    request = await far.receive()
    far.answer(request, "first")
    far.answer(request, "again")
    assert await call == "first"


async def test_a_timeout_is_told_to_the_node_and_kept_by_the_client(client: Client, far: FarEnd) -> None:
    call = called(client, timeout=0.02)
    request = await far.receive()
    assert request.timeout_ms == 20
    with pytest.raises(TimedOut) as caught:
        await call
    assert caught.value.code == "TIMEOUT_EXCEEDED"
    assert caught.value.state_changed is None
    assert await far.receive() == RpcCancel(request.u)
    assert client.calls_open == 0
    far.answer(request, "too late")
    again = called(client)
    far.answer(await far.receive(), "in time")
    assert await again == "in time"


async def test_the_default_timeout_need_not_be_told(client: Client, far: FarEnd) -> None:
    call = called(client)
    request = await far.receive()
    assert request.timeout_ms is msgspec.UNSET
    far.answer(request, None)
    await call


async def test_each_call_has_a_timeout_of_its_own(client: Client, far: FarEnd) -> None:
    long, short, middle = called(client, timeout=600), called(client, timeout=0.02), called(client, timeout=0.04)
    requests = [await far.receive() for _ in range(3)]
    for call in (short, middle):
        with pytest.raises(TimedOut):
            await call
    far.answer(requests[0], "still wanted")
    assert await long == "still wanted"


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
async def test_a_timeout_is_positive(client: Client, timeout: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        await client.call("f", timeout=timeout)


async def test_cancelling_a_call_cancels_it_on_the_node(client: Client, far: FarEnd) -> None:
    call = called(client)
    request = await far.receive()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await far.receive() == RpcCancel(request.u)
    assert client.calls_open == 0


async def test_what_a_node_says_is_raised_with_code_and_fields(client: Client, far: FarEnd) -> None:
    call = called(client)
    far.fail(await far.receive(), RpcError("RPC_FUNCTION_FAILED", "no", type="ValueError", state_changed=None, x=1))
    with pytest.raises(RpcError) as caught:
        await call
    error = caught.value
    assert (error.code, error.message, error.type) == ("RPC_FUNCTION_FAILED", "no", "ValueError")
    assert error.details == {"x": 1}
    assert error.state_changed is None


async def test_an_error_response_is_raised_too(client: Client, far: FarEnd) -> None:
    call = called(client)
    request = await far.receive()
    far.fail_with_error_response(request.u, ProtocolError("PROTOCOL_INVALID_MESSAGE", "bad", path="$.x"))
    with pytest.raises(ProtocolError) as caught:
        await call
    assert caught.value.details == {"path": "$.x"}


async def test_an_answer_of_another_kind_is_an_error(client: Client, far: FarEnd) -> None:
    call = called(client)
    far.send(InternalAnswer((await far.receive()).u, msgspec.Raw(b"\xc0")))
    with pytest.raises(ProtocolError, match="does not answer"):
        await call


async def test_an_answer_that_can_not_be_read_is_the_calls_error(client: Client, far: FarEnd) -> None:
    call = called(client)
    u = (await far.receive()).u
    far.link.send(msgspec.msgpack.encode({"role": "rpc-response", "u": u}), Encoding.MSGPACK)
    with pytest.raises(ProtocolError) as caught:
        await call
    assert caught.value.details["path"] == "$.r"
    assert caught.value.state_changed is None


async def test_what_makes_no_sense_is_logged_and_survived(
    client: Client, far: FarEnd, caplog: pytest.LogCaptureFixture
) -> None:
    far.link.send(b"\xc1nonsense", Encoding.MSGPACK)
    far.fail_with_error_response("nobody", ProtocolError("PROTOCOL_INTERNAL_ERROR", "hm"))
    call = called(client)
    far.answer(await far.receive(), 1)
    assert await call == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.WARNING]


# Results.


class Point(msgspec.Struct):
    x: int
    y: int


async def test_a_result_is_decoded_into_its_type(client: Client, far: FarEnd) -> None:
    call = called(client, result_type=list[Point])
    far.answer(await far.receive(), [{"x": 1, "y": 2}])
    assert await call == [Point(1, 2)]


async def test_a_result_that_does_not_fit_names_its_path(client: Client, far: FarEnd) -> None:
    call = called(client, result_type=list[Point])
    far.answer(await far.receive(), [{"x": 1, "y": "two"}])
    with pytest.raises(RpcError) as caught:
        await call
    assert caught.value.code == "RPC_INVALID_RESULT"
    assert caught.value.details["path"] == "$[0].y"
    assert caught.value.state_changed is True


class Plain:
    """No struct, no dataclass: nothing that a result could be read as."""


@pytest.mark.parametrize("result_type", [Plain, list[Plain], ["int"], 7])
async def test_a_type_that_no_result_has_is_refused_before_anything_is_sent(
    client: Client, far: FarEnd, result_type: Any
) -> None:
    with pytest.raises(TypeError):
        await called(client, result_type=result_type)
    with pytest.raises(TypeError):
        await client.request(command("f", result_type=result_type))
    assert (client.calls_open, far.unread) == (0, 0)


async def test_arguments_without_an_encoding_are_refused_before_anything_is_sent(client: Client, far: FarEnd) -> None:
    with pytest.raises(RpcError, match="can't be encoded") as caught:
        await client.call("f", object())
    assert caught.value.code == "RPC_INVALID_ARGUMENT"
    await asyncio.sleep(0)
    assert far.unread == 0


# The link.


async def test_calls_under_way_fail_when_the_link_breaks(client: Client, node: Scripted, far: FarEnd) -> None:
    calls = [called(client) for _ in range(3)]
    for _ in calls:
        await far.receive()
    far.link.close()
    for call in calls:
        with pytest.raises(TransportError) as caught:
            await call
        assert caught.value.code == "TRANSPORT_CONNECTION_LOST"
        assert caught.value.state_changed is None
        assert caught.value.retryable
    assert client.calls_open == 0


async def test_calls_that_are_not_sent_yet_wait_for_the_next_link(client: Client, node: Scripted, far: FarEnd) -> None:
    far.link.close()
    await far.closed.wait()
    while client.is_connected:
        await asyncio.sleep(0)
    calls = [called(client, number) for number in range(3)]
    second = await node.attached(2)
    for number in range(3):
        request = await second.receive()
        assert msgspec.msgpack.decode(request.cmds[0].args) == [number]
        second.answer(request, number)
    assert await asyncio.gather(*calls) == [0, 1, 2]


async def test_a_call_waits_for_a_link_no_longer_than_its_timeout(client: Client, node: Scripted, far: FarEnd) -> None:
    node.refusing = True
    far.link.close()
    while client.is_connected:
        await asyncio.sleep(0)
    with pytest.raises(TimedOut, match="No connection") as caught:
        await client.call("f", timeout=0.02)
    assert caught.value.state_changed is False
    assert client.calls_waiting == 0


async def test_a_call_that_waits_can_be_cancelled(client: Client, node: Scripted, far: FarEnd) -> None:
    node.refusing = True
    far.link.close()
    while client.is_connected:
        await asyncio.sleep(0)
    call = called(client)
    while not client.calls_waiting:
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert client.calls_waiting == 0


async def test_after_goodbye_new_calls_go_elsewhere_and_open_ones_finish(
    client: Client, node: Scripted, far: FarEnd
) -> None:
    old = called(client)
    request = await far.receive()
    far.send(Goodbye())
    second = await node.attached(2)
    new = called(client)
    second.answer(await second.receive(), "new")
    assert await new == "new"
    far.answer(request, "old")
    assert await old == "old"
    await far.closed.wait()
    assert not second.closed.is_set()


async def test_a_call_that_a_stopping_node_turns_away_goes_elsewhere(
    client: Client, node: Scripted, far: FarEnd
) -> None:
    call = called(client)
    far.fail(await far.receive(), ResourceError("RESOURCE_SHUTTING_DOWN", "no new work"))
    second = await node.attached(2)
    second.answer(await second.receive(), "there")
    assert await call == "there"


async def test_a_call_that_a_stopping_node_had_begun_is_not_repeated(
    client: Client, node: Scripted, far: FarEnd
) -> None:
    call = called(client)
    far.fail(await far.receive(), ResourceError("RESOURCE_SHUTTING_DOWN", "stopped", state_changed=None))
    with pytest.raises(ResourceError):
        await call


async def test_on_reconnected_is_told_of_every_link_but_the_first(client: Client, node: Scripted, far: FarEnd) -> None:
    told = asyncio.Event()

    async def tell() -> None:
        told.set()

    client.on_reconnected(tell)
    far.link.close()
    await node.attached(2)
    await told.wait()


async def test_a_hook_that_fails_does_not_end_the_client(
    client: Client, node: Scripted, far: FarEnd, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell() -> None:
        raise TransportError("TRANSPORT_CONNECTION_LOST", "again")

    client.on_reconnected(tell)
    far.link.close()
    second = await node.attached(2)
    call = called(client)
    second.answer(await second.receive(), 1)
    assert await call == 1
    assert "After a reconnect" in caplog.text


async def test_a_hook_with_a_fault_does_not_end_the_client(
    client: Client, node: Scripted, far: FarEnd, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell() -> None:
        raise ZeroDivisionError

    client.on_reconnected(tell)
    for number in (1, 2):
        (await node.attached(number)).link.close()
    third = await node.attached(3)
    call = called(client)
    third.answer(await third.receive(), 1)
    assert await call == 1
    assert "ZeroDivisionError" in caplog.text


async def test_pushed_messages_find_their_handler(
    client: Client, far: FarEnd, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[Rpc] = []

    def take(message: Rpc, encoding: Encoding) -> None:
        got.append(message)
        raise ValueError("a bug of the handler")

    client.on(Rpc, take)
    with pytest.raises(ValueError, match="has a handler"):
        client.on(Rpc, take)
    pushed = Rpc("x", ())
    far.send(pushed)
    call = called(client)
    far.answer(await far.receive(), None)
    await call
    assert got == [pushed]
    assert "a bug of the handler" in caplog.text


# Limits.


async def test_calls_past_what_a_node_allows_at_once_wait_for_room(node: Scripted) -> None:
    async with connect(node, in_flight_max=2) as client:
        far = await node.attached(1)
        calls = [called(client, number) for number in range(5)]
        for number in range(5):
            request = await far.receive()
            assert client.calls_open <= 2
            far.answer(request, number)
        assert await asyncio.gather(*calls) == list(range(5))


async def test_abandoned_calls_make_room(node: Scripted) -> None:
    async with connect(node, in_flight_max=1) as client:
        far = await node.attached(1)
        first, second = called(client), called(client)
        request = await far.receive()
        first.cancel()
        assert await far.receive() == RpcCancel(request.u)
        far.answer(await far.receive(), "second")
        assert await second == "second"


@pytest.mark.parametrize("limits", [{"waiting_max": 1}, {"waiting_bytes_max": 100}])
async def test_a_call_too_many_is_refused_at_once(node: Scripted, limits: dict[str, Any]) -> None:
    async with connect(node, in_flight_max=1, **limits) as client:
        far = await node.attached(1)
        sent, waits = called(client), called(client)
        request = await far.receive()
        with pytest.raises(ResourceError) as caught:
            await client.call("f")
        assert caught.value.code == "RESOURCE_EXHAUSTED"
        assert caught.value.state_changed is False
        far.answer(request, None)
        far.answer(await far.receive(), None)
        await asyncio.gather(sent, waits)


# Beginning and end.


async def test_connect_fails_at_once_when_there_is_no_node(node: Scripted) -> None:
    node.refusing = True
    with pytest.raises(TransportError) as caught:
        await connect(node)
    assert caught.value.code == "TRANSPORT_CONNECTION_REFUSED"


async def test_connect_with_patience_waits_for_the_node(node: Scripted) -> None:
    node.refusing = True
    connecting = asyncio.ensure_future(connect(node, patience_s=60).connected())
    await asyncio.sleep(0)
    node.refusing = False
    client = await connecting
    assert client.is_connected
    await client.close()


async def test_closing_fails_what_is_under_way(node: Scripted) -> None:
    client = await connect(node, in_flight_max=1)
    far = await node.attached(1)
    sent, waits = called(client), called(client)
    await far.receive()
    await client.close()
    for call, state_changed in ((sent, None), (waits, False)):
        with pytest.raises(TransportError) as caught:
            await call
        assert (caught.value.code, caught.value.state_changed) == ("TRANSPORT_CLOSED", state_changed)
    with pytest.raises(TransportError, match="closed"):
        await client.call("f")
    await client.close()


async def test_nothing_is_left_after_a_client() -> None:
    before = asyncio.all_tasks()
    node = Scripted()
    async with connect(node) as client:
        far = await node.attached(1)
        call = called(client)
        far.answer(await far.receive(), None)
        await call
    await far.closed.wait()
    assert asyncio.all_tasks() == before


async def test_no_address_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one address"):
        await connect([])


@pytest.mark.parametrize("settings", [{"timeout_s": 0}, {"timeout_s": "soon"}, {"patience_s": -1}])
async def test_settings_are_checked(node: Scripted, settings: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        connect(node, **settings)


async def test_a_source_that_raises_our_errors_is_tried_again() -> None:
    """As a listener does that accepts and hangs up."""

    class Flaky(Scripted):
        attempts = 0

        def attach(self, accept: Accept) -> Link:
            self.attempts += 1
            link = super().attach(accept)
            if self.attempts < 3:
                link.close()
            return link

    node = Flaky()
    async with connect(node) as client:
        far = await node.attached(3)
        call = called(client)
        far.answer(await far.receive(), "at last")
        assert await call == "at last"

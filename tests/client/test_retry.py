"""The retry policy: what is tried again, how often, after which pauses, and what never is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.client.scripted import FarEnd, Scripted

from mpreg.client import Client, RetryPolicy, command, connect
from mpreg.client.retry import with_retries
from mpreg.errors import MpregError, ResourceError, RpcError, TransportError
from mpreg.node import Node, Settings

pytestmark = pytest.mark.anyio

FULL = ResourceError("RESOURCE_EXHAUSTED", "full")
LOST = TransportError("TRANSPORT_CONNECTION_LOST", "gone", state_changed=None)
WRONG = RpcError("RPC_INVALID_ARGUMENT", "no")
SOON = RetryPolicy(base_delay_ms=0.001, max_delay_ms=0.001)


@pytest.fixture
async def node() -> Scripted:
    return Scripted()


@pytest.fixture
async def client(node: Scripted) -> AsyncIterator[Client]:
    async with connect(node, retry=SOON) as client:
        yield client
        assert (client.calls_open, client.calls_waiting) == (0, 0)


@pytest.fixture
async def far(node: Scripted, client: Client) -> FarEnd:
    return await node.attached(1)


def test_the_defaults_are_those_of_the_protocol() -> None:
    policy = RetryPolicy()
    assert (policy.max_retries, policy.base_delay_ms, policy.max_delay_ms) == (3, 1_000, 30_000)
    assert (policy.backoff_multiplier, policy.jitter) == (2.0, True)


@pytest.mark.parametrize(
    "fields",
    [{"max_retries": -1}, {"base_delay_ms": 0}, {"backoff_multiplier": 0.5}, {"base_delay_ms": 2, "max_delay_ms": 1}],
)
def test_a_policy_without_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises((msgspec.ValidationError, ValueError)):
        msgspec.convert(fields, RetryPolicy)


@pytest.mark.parametrize(
    ("policy", "error", "allowed"),
    [
        (RetryPolicy(), FULL, True),
        (RetryPolicy(), LOST, False),
        (RetryPolicy(idempotent=True), LOST, True),
        (RetryPolicy(idempotent=True), WRONG, False),
        (RetryPolicy(retryable_errors=("TIMEOUT_EXCEEDED",)), FULL, False),
        (RetryPolicy(retryable_errors=("RPC_INVALID_ARGUMENT",)), WRONG, True),
    ],
)
def test_a_repeat_must_promise_something_and_be_harmless(policy: RetryPolicy, error: MpregError, allowed: bool) -> None:
    assert policy.allows(error) is allowed


async def test_a_call_that_was_refused_is_sent_again(client: Client, far: FarEnd) -> None:
    call = asyncio.create_task(client.call("f", 1))
    for _ in range(2):
        far.fail(await far.receive(), FULL)
    far.answer(await far.receive(), "third")
    assert await call == "third"


async def test_a_request_of_several_commands_is_sent_again_as_a_whole(client: Client, far: FarEnd) -> None:
    call = asyncio.create_task(client.request([command("f"), command("g")]))
    far.fail(await far.receive(), FULL)
    again = await far.receive()
    far.answer(again, {each.name: each.fun for each in again.cmds})
    assert await call == ["f", "g"]


async def test_after_the_last_retry_its_error_says_how_many_there_were(client: Client, far: FarEnd) -> None:
    call = asyncio.create_task(client.call("f"))
    for _ in range(4):
        far.fail(await far.receive(), FULL)
    with pytest.raises(ResourceError) as caught:
        await call
    assert caught.value.details["retry_count"] == 3
    assert far.unread == 0


async def test_what_may_have_run_is_not_sent_again(client: Client, node: Scripted, far: FarEnd) -> None:
    call = asyncio.create_task(client.call("f"))
    await far.receive()
    far.link.close()
    with pytest.raises(TransportError) as caught:
        await call
    assert caught.value.code == "TRANSPORT_CONNECTION_LOST"
    assert "retry_count" not in caught.value.details
    assert (await node.attached(2)).unread == 0


async def test_a_program_whose_calls_may_run_twice_can_say_so(node: Scripted) -> None:
    async with connect(node, retry=RetryPolicy(base_delay_ms=1, max_delay_ms=1, idempotent=True)) as client:
        call = asyncio.create_task(client.call("f"))
        first = await node.attached(1)
        await first.receive()
        first.link.close()
        second = await node.attached(2)
        second.answer(await second.receive(), "there")
        assert await call == "there"


async def test_a_cancelled_call_is_not_tried_again(client: Client, far: FarEnd) -> None:
    call = asyncio.create_task(client.call("f"))
    await far.receive()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_pauses_grow_and_end_before_the_timeout_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    pauses: list[float] = []
    left: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        pauses.append(seconds)

    async def attempt(left_s: float) -> None:
        left.append(left_s)
        raise ResourceError("RESOURCE_EXHAUSTED", "full")

    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now, raising=False)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    policy = RetryPolicy(max_retries=9, base_delay_ms=1_000, max_delay_ms=4_000, jitter=False)
    with pytest.raises(ResourceError) as caught:
        await with_retries(policy, 16.0, attempt)
    assert pauses == [1, 2, 4, 4, 4]
    assert left == [16, 15, 13, 9, 5, 1]
    assert caught.value.details["retry_count"] == 5


@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_error_from_inside_a_function_does_not_promise_that_nothing_happened(in_thread: bool) -> None:
    """Or the policy would run a function twice that failed half way, at something that it asked of others."""
    node = Node("n", Settings(ws="off", tcp="off", store="off"))
    begun = 0

    def half() -> None:
        nonlocal begun
        begun += 1
        raise ResourceError("RESOURCE_EXHAUSTED", "the next one in line is full")

    async def half_async() -> None:
        half()

    node.function(name="f")(half if in_thread else half_async)
    async with node, connect(node, retry=SOON) as client:
        with pytest.raises(ResourceError) as caught:
            await client.call("f")
    assert caught.value.state_changed is None
    assert begun == 1

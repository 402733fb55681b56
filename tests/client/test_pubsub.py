"""Topics as a program uses them: a stream that outlives its connection, a bounded buffer, questions and answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.client.scripted import FarEnd, Scripted

from mpreg.client import Client, connect
from mpreg.client import pubsub as client_pubsub
from mpreg.client import upkeep as client_upkeep
from mpreg.client.publishing import AHEAD_BYTES
from mpreg.errors import MpregError, PubSubError, ResourceError, TimedOut, TransportError
from mpreg.node import Node, Settings
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import Limits
from mpreg.wire.pubsub import (
    PubSubAck,
    PubSubMessage,
    PubSubNotification,
    PubSubPublish,
    PubSubSubscribe,
    PubSubUnsubscribe,
)
from mpreg.wire.received import Message

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct):
    id: int
    items: list[str] = []


@pytest.fixture
async def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
async def client(scripted: Scripted) -> AsyncIterator[Client]:
    async with connect(scripted) as client:
        yield client


@pytest.fixture
async def far(scripted: Scripted, client: Client) -> FarEnd:
    return await scripted.attached(1)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with Node("one", Settings(ws=0, tcp=0, store="off", grace_s=0)) as node:
        yield node


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_upkeep, "STABLE_S", 0.0)
    monkeypatch.setattr(client_pubsub, "AGAIN_S", 0.0)


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def notify(far: FarEnd, request: PubSubSubscribe, *payloads: Any, seq: int, backlog: bool = False) -> None:
    messages = [PubSubMessage(topic="a.b", payload=raw(payload), message_id=f"m{payload}") for payload in payloads]
    far.send(
        PubSubNotification(
            subscription_id=request.subscription.subscription_id,
            positions={"here": seq},
            messages=raw(messages),
            backlog=backlog,
        )
    )


def acknowledge(far: FarEnd, request: PubSubSubscribe, seq: int = 0, gap: bool = False) -> None:
    ack = PubSubAck(operation_id=request.subscription.subscription_id, u=request.u, positions={"here": seq})
    far.send(msgspec.structs.replace(ack, gap=True) if gap else ack)


async def accept(far: FarEnd, seq: int = 0) -> PubSubSubscribe:
    request = await far.receive()
    assert isinstance(request, PubSubSubscribe)
    acknowledge(far, request, seq)
    return request


async def some(messages: Any, count: int) -> list[Any]:
    return [(await anext(messages)).payload for _ in range(count)]


# Publishing.


async def test_what_is_published_in_one_turn_leaves_as_one_batch_in_order(client: Client, far: FarEnd) -> None:
    for number in range(5):
        await client.publish("a.b", number)
    await client.publish("c", 5, headers={"h": 1}, reply_to="answers.here")
    request = await far.receive()
    assert isinstance(request, PubSubPublish)
    assert request.messages
    assert [msgspec.msgpack.decode(message.payload) for message in request.messages] == list(range(6))
    assert request.messages[-1].topic == "c"
    assert (request.messages[-1].headers, request.messages[-1].reply_to) == ({"h": 1}, "answers.here")


async def test_what_was_published_before_a_close_arrives(node: Node) -> None:
    async with connect(node) as other, other.subscribe("a") as messages:
        async with connect(node.listeners["tcp"]) as client:
            for number in range(1_000):
                await client.publish("a", number)
        assert await some(messages, 1_000) == list(range(1_000))


@pytest.mark.parametrize("topic", ["a..b", "a.*", "#", "", "x" * 2_000])
async def test_a_topic_that_is_none_is_refused_before_it_is_sent(client: Client, far: FarEnd, topic: str) -> None:
    for attempt in (client.publish(topic, 1), client.publish(topic, 1, ack=True), client.query(topic, 1)):
        with pytest.raises(PubSubError, match="PUBSUB_INVALID_TOPIC"):
            await attempt
    with pytest.raises(PubSubError, match="PUBSUB_INVALID_TOPIC"):
        await client.publish("a", 1, reply_to=topic)
    assert far.unread == 0


@pytest.mark.parametrize("payload", [object(), {(1, 2): object()}, 2**80])
async def test_a_payload_that_has_no_encoding_is_refused(client: Client, far: FarEnd, payload: Any) -> None:
    for ack in (True, False):
        with pytest.raises(PubSubError, match="PUBSUB_UNENCODABLE_PAYLOAD"):
            await client.publish("a", payload, ack=ack)
    assert far.unread == 0


async def test_a_message_over_the_limit_fails_alone(node: Node) -> None:
    limits = Limits(message_bytes_max=100_000)
    async with connect(node.listeners["tcp"], limits=limits) as client, client.subscribe("a") as messages:
        await client.publish("a", "before")
        with pytest.raises(ResourceError, match="RESOURCE_MESSAGE_TOO_LARGE"):
            await client.publish("a", "x" * 200_000)
        await client.publish("a", "after")
        assert await some(messages, 2) == ["before", "after"]


async def test_publishers_wait_while_the_node_does_not_read_and_keep_their_order(client: Client, far: FarEnd) -> None:
    far.link.pause_reading()
    near = client._exchange.current
    assert near is not None
    payload = "x" * 30_000
    publishing = [asyncio.create_task(client.publish("a", [number, payload])) for number in range(500)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert near.link.waiting < AHEAD_BYTES + 100_000, "500 of them are 15 MB"
    assert not publishing[-1].done()
    far.link.resume_reading()
    await asyncio.gather(*publishing)
    numbers: list[int] = []
    while len(numbers) < 500:
        request = await far.receive()
        numbers += [msgspec.msgpack.decode(message.payload)[0] for message in request.messages]
    assert numbers == list(range(500))


async def test_without_a_connection_publish_says_so(client: Client, far: FarEnd, scripted: Scripted) -> None:
    scripted.refusing = True
    far.link.close()
    await far.closed.wait()
    while client.is_connected:
        await asyncio.sleep(0)
    with pytest.raises(TransportError, match="TRANSPORT_CONNECTION_LOST"):
        await client.publish("a", 1)


async def test_an_acknowledged_publish_is_sent_again_under_the_same_id(client: Client, scripted: Scripted) -> None:
    """So that the node, which may have it, publishes it once."""
    publishing = asyncio.create_task(client.publish("a", 1, ack=True))
    far = await scripted.attached(1)
    first = await far.receive()
    far.link.close()
    far = await scripted.attached(2)
    second = await far.receive()
    assert first == second
    assert second.message.publisher
    assert second.message.message_id
    far.send(PubSubAck(operation_id=second.message.message_id, u=second.u))
    await publishing


async def test_an_acknowledged_publish_that_is_refused_says_why(client: Client, far: FarEnd) -> None:
    publishing = asyncio.create_task(client.publish("a", 1, ack=True))
    request = await far.receive()
    far.fail_with_error_response(request.u, PubSubError("PUBSUB_LIMIT", "no"))
    with pytest.raises(PubSubError, match="PUBSUB_LIMIT"):
        await publishing


async def test_an_acknowledgement_that_does_not_come_is_a_timeout(client: Client, far: FarEnd) -> None:
    with pytest.raises(TimedOut) as caught:
        await client.publish("a", 1, ack=True, timeout=0.01)
    assert caught.value.state_changed is None


# Subscribing.


@pytest.mark.parametrize("scheme", ["ws", "tcp", "in process"])
@pytest.mark.parametrize("encoding", Encoding)
async def test_messages_come_with_all_that_was_said(node: Node, scheme: str, encoding: Encoding) -> None:
    target = node if scheme == "in process" else node.listeners[scheme]
    async with connect(target, encoding=encoding) as client:
        await client.publish("orders.old", {"id": 0}, ack=True)
        async with client.subscribe("orders.#", "x", backlog=60, payload_type=Order) as messages:
            await client.publish("orders.new", Order(1, ["a"]), headers={"h": [1]}, reply_to="here")
            old, new = await anext(messages), await anext(messages)
    assert (old.topic, old.payload, old.backlog) == ("orders.old", Order(0), True)
    assert (new.topic, new.payload, new.backlog) == ("orders.new", Order(1, ["a"]), False)
    assert (new.headers, new.reply_to) == ({"h": [1]}, "here")
    assert new.message_id
    assert new.timestamp > 1e9


async def test_an_exact_pattern_is_no_pattern(node: Node) -> None:
    async with connect(node) as client, client.subscribe("a.b", exact=True) as messages:
        await client.publish("a.c", 1)
        await client.publish("a.b", 2)
        assert await some(messages, 1) == [2]


async def test_a_payload_of_another_type_is_left_out_and_counted(node: Node) -> None:
    async with connect(node) as client, client.subscribe("a", payload_type=Order) as messages:
        for payload in ({"id": 1}, {"id": "one"}, 7, {"id": 2}):
            await client.publish("a", payload)
        assert await some(messages, 2) == [Order(1), Order(2)]
        assert messages.invalid == 2


async def test_batches_are_all_that_has_come(node: Node) -> None:
    async with connect(node) as client:
        messages = await client.subscribe("a")
        for number in range(100):
            await client.publish("a", number)
        got: list[int] = []
        async for batch in messages.batches():
            got += [message.payload for message in batch]
            if len(got) == 100:
                await messages.close()
        assert got == list(range(100))


async def test_a_callback_is_called_in_order_and_may_fail(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    got: dict[str, list[Any]] = {"sync": [], "async": []}
    done = asyncio.Event()

    def take(message: Message[int]) -> None:
        got["sync"].append(message.payload)
        if message.payload == 2:
            raise ValueError("on purpose")

    async def take_slowly(message: Message[int]) -> None:
        await asyncio.sleep(0)
        got["async"].append(message.payload)
        if message.payload == 2:
            raise ValueError("on purpose")
        if message.payload == 9:
            done.set()

    async with connect(node) as client:
        first = await client.subscribe("a", callback=take)
        async with client.subscribe("a", callback=take_slowly) as second:
            for number in range(10):
                await client.publish("a", number)
            await done.wait()
        await first.close()
    assert got == {"sync": list(range(10)), "async": list(range(10))}
    assert (first.failed, second.failed) == (1, 1)
    assert caplog.text.count("The subscriber of a failed") == 2


async def test_a_callback_that_hides_a_coroutine_is_told(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    async def work(message: Message[int]) -> None:
        raise AssertionError

    called = asyncio.Event()

    def hidden(message: Message[int]) -> Any:
        called.set()
        return work(message)

    async with connect(node) as client, client.subscribe("a", callback=hidden) as subscription:
        await client.publish("a", 1)
        await called.wait()
        assert subscription.failed == 1
    assert "make it `async def`" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [{"backlog": -1}, {"backlog": float("nan")}, {"buffer": 0}],
)
async def test_an_option_out_of_range_is_refused_at_once(client: Client, far: FarEnd, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a subscription has"):
        client.subscribe("a", **wrong)
    with pytest.raises(ValueError, match="a subscription has"):
        client.subscribe()
    with pytest.raises(PubSubError, match="PUBSUB_INVALID_PATTERN"):
        client.subscribe("a..b")
    assert far.unread == 0


async def test_a_subscription_that_the_node_refuses_raises_why(client: Client, far: FarEnd) -> None:
    beginning = asyncio.ensure_future(client.subscribe("a").begun())
    request = await far.receive()
    far.fail_with_error_response(request.u, PubSubError("PUBSUB_LIMIT", "no"))
    with pytest.raises(PubSubError, match="PUBSUB_LIMIT"):
        await beginning


async def test_a_subscription_begins_once_and_ends_once(client: Client, far: FarEnd) -> None:
    beginning = asyncio.ensure_future(client.subscribe("a").begun())
    request = await accept(far)
    subscription = await beginning
    async with subscription:
        notify(far, request, 1, 2, seq=2)
        assert await some(subscription, 1) == [1]
    assert await far.receive() == PubSubUnsubscribe(subscription_id=request.subscription.subscription_id)
    assert await some(subscription, 1) == [2], "what is buffered can still be read"
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)
    await subscription.close()
    assert far.unread == 0
    with pytest.raises(PubSubError, match="closed"):
        await subscription


# The buffer.


async def test_a_full_buffer_drops_the_oldest_and_counts_them(node: Node) -> None:
    async with connect(node) as client, client.subscribe("a", buffer=10) as messages:
        for number in range(100):
            await client.publish("a", number)
        await client.call("echo", 1)
        while messages.dropped + len(messages) < 100:
            await asyncio.sleep(0)
        assert len(messages) == 10
        assert await some(messages, 10) == list(range(90, 100))
        assert messages.dropped == 90


async def test_a_full_buffer_may_end_the_stream_instead(node: Node) -> None:
    async with connect(node) as client, client.subscribe("a", buffer=10, on_full="fail") as messages:
        for number in range(100):
            await client.publish("a", number)
        while not messages.is_closed:
            await asyncio.sleep(0)
        assert await some(messages, 10) == list(range(10))
        with pytest.raises(PubSubError, match="PUBSUB_BUFFER_FULL"):
            await anext(messages)
        assert await client.call("echo", "the connection is as good as before") == "the connection is as good as before"


# When the connection breaks.


async def test_it_begins_again_where_it_was(client: Client, scripted: Scripted, far: FarEnd) -> None:
    beginning = asyncio.ensure_future(client.subscribe("a.#", "b").begun())
    first = await accept(far, seq=5)
    messages = await beginning
    assert first.subscription.get_backlog is False
    notify(far, first, 1, 2, seq=7)
    assert await some(messages, 2) == [1, 2]
    far.link.close()
    far = await scripted.attached(2)
    second = await far.receive()
    assert second.subscription.after == {"here": 7}
    assert second.subscription.get_backlog is True
    assert second.subscription.backlog_seconds is msgspec.UNSET
    assert [each.pattern for each in second.subscription.patterns] == ["a.#", "b"]
    assert second.subscription.subscription_id != first.subscription.subscription_id
    acknowledge(far, second, seq=9)
    notify(far, second, 3, seq=9, backlog=True)
    notify(far, first, "of the connection that is gone", seq=9)
    notify(far, second, 4, seq=10)
    assert await some(messages, 2) == [3, 4]
    assert messages.gaps == 0


async def test_nothing_came_yet_then_it_begins_where_it_was_to_begin(client: Client, scripted: Scripted) -> None:
    far = await scripted.attached(1)
    plain = asyncio.ensure_future(client.subscribe("a").begun())
    await accept(far, seq=5)
    late = asyncio.ensure_future(client.subscribe("b", backlog=60).begun())
    assert (await accept(far, seq=5)).subscription.backlog_seconds == pytest.approx(60)
    (await plain, await late)
    far.link.close()
    far = await scripted.attached(2)
    again = {
        each.subscription.patterns[0].pattern: each.subscription for each in (await accept(far), await accept(far))
    }
    assert again["a"].after == {"here": 5}
    assert again["b"].after is msgspec.UNSET
    assert again["b"].backlog_seconds > 60, "and what came since"


async def test_a_connection_that_breaks_while_subscriptions_begin_again_loses_none(
    client: Client, scripted: Scripted, far: FarEnd
) -> None:
    beginning = [asyncio.ensure_future(client.subscribe(pattern).begun()) for pattern in ("a", "b", "c")]
    for _ in beginning:
        await accept(far)
    subscriptions = [await each for each in beginning]
    far.link.close()
    far = await scripted.attached(2)
    await accept(far)
    far.link.close()
    async with asyncio.timeout(5):
        far = await scripted.attached(3)
        requests = [await accept(far) for _ in subscriptions]
        for request in requests:
            notify(far, request, request.subscription.patterns[0].pattern, seq=1)
        assert [await some(each, 1) for each in subscriptions] == [["a"], ["b"], ["c"]]


async def test_a_subscription_that_is_refused_after_a_reconnect_ends_with_why(
    client: Client, scripted: Scripted, far: FarEnd
) -> None:
    beginning = asyncio.ensure_future(client.subscribe("a").begun())
    first = await accept(far)
    messages = await beginning
    notify(far, first, 1, seq=1)
    far.link.close()
    far = await scripted.attached(2)
    request = await far.receive()
    far.fail_with_error_response(request.u, PubSubError("PUBSUB_LIMIT", "too busy for now", retryable=True))
    request = await far.receive()
    far.fail_with_error_response(request.u, PubSubError("PUBSUB_LIMIT", "no"))
    assert await some(messages, 1) == [1]
    with pytest.raises(PubSubError, match="PUBSUB_LIMIT"):
        await anext(messages)
    assert messages.error is not None


async def test_a_gap_is_counted(client: Client, scripted: Scripted, far: FarEnd) -> None:
    beginning = asyncio.ensure_future(client.subscribe("a").begun())
    await accept(far)
    messages = await beginning
    far.link.close()
    far = await scripted.attached(2)
    request = await far.receive()
    acknowledge(far, request, gap=True)
    notify(far, request, 1, seq=1)
    assert await some(messages, 1) == [1]
    assert messages.gaps == 1


async def test_every_message_comes_once_and_in_order_whatever_breaks(node: Node) -> None:
    """Links end at random moments of a stream, those of the publisher and those of the subscribers."""
    for seed in range(20):
        random_ = random.Random(seed)
        topic = f"seed{seed}"
        async with connect(node) as publisher, connect(node.listeners["tcp"]) as first, connect(node) as second:
            clients = [publisher, first, second]
            streams = [await first.subscribe(f"{topic}.#"), await second.subscribe(f"{topic}.*", backlog=300)]
            for number in range(60):
                if random_.random() < 0.1:
                    current = random_.choice(clients)._exchange.current
                    if current is not None:
                        current.link.close()
                await publisher.publish(f"{topic}.{number % 3}", number, ack=True)
            assert [await some(stream, 60) for stream in streams] == [list(range(60))] * 2
            await publisher.publish(f"{topic}.end", "end")
            assert [await some(stream, 1) for stream in streams] == [["end"]] * 2
            assert [stream.gaps for stream in streams] == [0, 0]


async def test_a_node_that_comes_back_is_heard_again() -> None:
    settings = Settings(ws="off", tcp=0, store="off", grace_s=0)
    node = Node("one", settings)
    await node.start()
    url = node.listeners["tcp"]
    async with connect(url) as client, client.subscribe("a", backlog=60) as messages:
        await client.publish("a", 1)
        assert await some(messages, 1) == [1]
        await node.stop()
        again = Node("again", msgspec.structs.replace(settings, tcp=int(url.rsplit(":", 1)[1])))
        async with again, connect(again) as other:
            await other.publish("a", 2, ack=True)
            assert await some(messages, 1) == [2]


# Questions and answers.


async def test_a_question_gets_the_first_answer(node: Node) -> None:
    async with connect(node) as asking, connect(node.listeners["tcp"]) as answering:

        async def answer(message: Message[int]) -> None:
            await answering.reply(message, message.payload * 2, headers={"by": "two"})
            await answering.reply(message, "too late")

        async with answering.subscribe("double", callback=answer):
            found = await asyncio.gather(*(asking.query("double", number) for number in range(50)))
        assert [message.payload for message in found] == [2 * number for number in range(50)]
        assert found[0].headers == {"by": "two"}
        assert (await asking.call("mpreg.stats"))["topic_exchange"]["active_subscriptions"] == 1, "one for all answers"


async def test_a_question_that_nobody_answers_times_out_and_leaves_nothing(node: Node) -> None:
    async with connect(node) as client:
        with pytest.raises(TimedOut, match="Nobody answered"):
            await client.query("nobody", 1, timeout=0.05)
        assert client._pubsub._queries == {}
        cancelled = asyncio.create_task(client.query("nobody", 1))
        while not client._pubsub._queries:
            await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert client._pubsub._queries == {}


async def test_only_a_question_can_be_answered(node: Node) -> None:
    async with connect(node) as client, client.subscribe("a") as messages:
        await client.publish("a", 1)
        with pytest.raises(ValueError, match="no answer"):
            await client.reply(await anext(messages), 2)


async def test_a_client_that_closes_leaves_no_subscription_and_no_task(node: Node) -> None:
    before = asyncio.all_tasks()
    client = await connect(node.listeners["tcp"])
    messages = await client.subscribe("a")
    waiting = asyncio.ensure_future(anext(messages))
    with pytest.raises(MpregError):
        await client.query("b", 1, timeout=0.01)
    await client.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    async with connect(node) as other:
        while (await other.call("mpreg.stats"))["topic_exchange"]["active_subscriptions"]:
            pass
    assert {task for task in asyncio.all_tasks() - before if task.get_name().startswith("mpreg")} == set()

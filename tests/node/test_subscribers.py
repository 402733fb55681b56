"""`@node.subscriber`: handlers in the same program, sync and async, typed, so many at a time; drained when it stops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mpreg.client import connect
from mpreg.errors import MpregError, PubSubError
from mpreg.node import Node, Settings
from mpreg.pubsub import PubSubLimits, PubSubService
from mpreg.wire.encoding import Encoding
from mpreg.wire.received import Message

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct):
    id: int
    items: list[str] = []


class Got(list[Any]):
    """What handlers got; `all(n)` returns when there are n of them. May be filled from threads."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()

    def add(self, value: Any) -> None:
        self.append(value)
        self._loop.call_soon_threadsafe(self._more.set)

    async def all(self, count: int) -> list[Any]:
        while len(self) < count:
            self._more.clear()
            await self._more.wait()
        return list(self)


def new_node(**settings: Any) -> Node:
    return Node("one", Settings(ws="off", tcp=0, store="off", grace_s=settings.pop("grace_s", 5.0), **settings))


def topics_of(node: Node) -> PubSubService:
    return node._started().services.pubsub


def counts(node: Node) -> dict[str, Any]:
    (found,) = node._statistics()["topic_exchange"]["handlers"]
    return dict(found)


@pytest.mark.parametrize("encoding", Encoding)
async def test_a_handler_takes_the_message_or_its_payload_by_its_hint(encoding: Encoding) -> None:
    node, got = new_node(), Got()

    @node.subscriber("orders.#")
    async def whole(message: Message[Order]) -> None:
        got.add(("whole", message.topic, message.payload, message.headers, message.message_id))

    @node.subscriber("orders.*", "#.new")
    async def typed(order: Order) -> None:
        got.add(("typed", order))

    @node.subscriber("orders.new")
    async def plain(message) -> None:  # type: ignore[no-untyped-def]
        got.add(("plain", message.payload))

    @node.subscriber("orders.*", exact=True)
    async def literal(message: Message[Any]) -> None:
        raise AssertionError("no topic is called that")

    async with node, connect(node.listeners["tcp"], encoding=encoding) as client:
        await client.publish("orders.new", Order(1, ["a"]), headers={"h": 1}, ack=True)
        found = await got.all(3)
    (whole_id,) = [each[-1] for each in found if each[0] == "whole"]
    assert sorted(found, key=lambda each: str(each[0])) == [
        ("plain", {"id": 1, "items": ["a"]}),
        ("typed", Order(1, ["a"])),
        ("whole", "orders.new", Order(1, ["a"]), {"h": 1}, whole_id),
    ]
    assert whole_id


async def test_one_at_a_time_keeps_the_order_also_in_a_thread() -> None:
    node, got = new_node(), Got()
    threads: set[str] = set()

    @node.subscriber("a")
    def blocking(number: int) -> None:
        threads.add(threading.current_thread().name)
        got.add(("thread", number))

    @node.subscriber("a")
    async def waiting(number: int) -> None:
        await asyncio.sleep(0)
        got.add(("loop", number))

    async with node, connect(node) as client:
        for number in range(100):
            await client.publish("a", number)
        found = await got.all(200)
    for way in ("thread", "loop"):
        assert [number for each, number in found if each == way] == list(range(100))
    assert threading.current_thread().name not in threads


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_than_so_many_at_a_time(concurrency: int) -> None:
    node, started, gate = new_node(), Got(), asyncio.Event()
    running = most = 0

    @node.subscriber("a", concurrency=concurrency)
    async def slow(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        started.add(number)
        await gate.wait()
        running -= 1

    async with node, connect(node) as client:
        for number in range(10):
            await client.publish("a", number, ack=True)
        await started.all(concurrency)
        assert counts(node) | {"name": ""} == {
            "name": "",
            "patterns": ["a"],
            "waiting": 10 - concurrency,
            "running": concurrency,
            "handled": 0,
            "failed": 0,
            "invalid": 0,
            "dropped": 0,
        }
        gate.set()
        await started.all(10)
    assert most == concurrency


@pytest.mark.parametrize("raised", [ValueError("on purpose"), SystemExit(3), asyncio.CancelledError()])
async def test_what_a_handler_raises_is_logged_and_the_next_message_comes(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    node, got = new_node(), Got()

    @node.subscriber("a.*")
    async def picky(number: int) -> None:
        if number == 1:
            raise raised
        got.add(number)

    async with node, connect(node) as client:
        for number in range(3):
            await client.publish("a.b", number)
        assert await got.all(2) == [0, 2]
        assert (counts(node)["handled"], counts(node)["failed"]) == (2, 1)
    assert "picky failed on a.b" in caplog.text


async def test_a_payload_of_another_type_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    node, got = new_node(), Got()

    @node.subscriber("a")
    async def typed(order: Order) -> None:
        got.add(order.id)

    async with node, connect(node) as client:
        for payload in ({"id": 1}, {"id": "x"}, None, {"id": 2}):
            await client.publish("a", payload)
        assert await got.all(2) == [1, 2]
        assert counts(node)["invalid"] == 2
    assert "Expected `int`, got `str` - at `$.id`" in caplog.text


async def test_a_handler_that_does_not_keep_up_loses_the_oldest_and_delays_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, started, gate = new_node(), Got(), asyncio.Event()

    @node.subscriber("a", buffer=5)
    async def slow(number: int) -> None:
        started.add(number)
        await gate.wait()

    async with node, connect(node) as client, client.subscribe("a") as messages:
        await client.publish("a", 0)
        await started.all(1)
        for number in range(1, 101):
            await client.publish("a", number)
        assert [(await anext(messages)).payload for _ in range(101)] == list(range(101))
        assert (counts(node)["waiting"], counts(node)["dropped"]) == (5, 95)
        gate.set()
        assert await started.all(6) == [0, *range(96, 101)]
        topic_exchange = node._statistics()["topic_exchange"]
        assert topic_exchange["messages_dropped"] == 95
        assert topic_exchange["messages_delivered"] == 101 + 6
    assert caplog.text.count("does not keep up") == 1


async def test_what_a_handler_returns_answers_a_question() -> None:
    node = new_node()

    @node.subscriber("double")
    async def double(number: int) -> int:
        return number * 2

    @node.subscriber("silent")
    async def silent(number: int) -> None: ...

    async with node, connect(node) as client:
        assert (await client.query("double", 21)).payload == 42
        with pytest.raises(MpregError, match="TIMEOUT_EXCEEDED"):
            await client.query("silent", 21, timeout=0.05)
        await client.publish("double", 1, ack=True)


async def test_the_program_itself_publishes_on_the_loop_and_from_threads() -> None:
    node, got = new_node(), Got()

    @node.subscriber("out.#")
    async def take(message: Message[int]) -> None:
        got.add((message.topic, message.payload, message.headers, message.reply_to))

    @node.subscriber("in")
    def from_thread(number: int) -> None:
        node.publish("out.thread", number, headers={"h": 1})
        with pytest.raises(PubSubError, match="PUBSUB_INVALID_TOPIC"):
            node.publish("out.*", number)

    with pytest.raises(RuntimeError, match="does not run"):
        node.publish("out.loop", 0)
    async with node:
        node.publish("out.loop", 1, reply_to="x")
        node.publish("in", 2)
        assert await got.all(2) == [("out.loop", 1, {}, "x"), ("out.thread", 2, {"h": 1}, None)]
        for topic, payload, code in (("a.*", 1, "INVALID_TOPIC"), ("a", object(), "UNENCODABLE_PAYLOAD")):
            with pytest.raises(PubSubError, match=code):
                node.publish(topic, payload)
        with pytest.raises(PubSubError, match="UNENCODABLE_PAYLOAD"):
            node.publish("a", 1, headers={"h": object()})
        with pytest.raises(PubSubError, match="INVALID_TOPIC"):
            node.publish("a", 1, reply_to="b.#")
        assert [each["failed"] for each in topics_of(node).report()["handlers"]] == [0, 0]


async def test_a_node_that_stops_handles_what_has_come() -> None:
    node, got, gate = new_node(), Got(), asyncio.Event()

    @node.subscriber("a")
    async def slow(number: int) -> None:
        got.add(number)
        await gate.wait()
        node.publish("done", number)

    await node.start()
    async with connect(node) as client, client.subscribe("done") as done:
        for number in range(10):
            await client.publish("a", number, ack=True)
        await got.all(1)
        stopping = asyncio.create_task(node.stop())
        while topics_of(node).report()["active_subscriptions"] > 1:
            await asyncio.sleep(0)
        await client.publish("a", "too late", ack=True)
        gate.set()
        await stopping
        assert [(await anext(done)).payload for _ in range(10)] == list(range(10))
    assert got == list(range(10))


async def test_what_is_not_handled_within_the_grace_time_is_cancelled_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, got = new_node(grace_s=0.05), Got()
    cancelled = asyncio.Event()

    @node.subscriber("a")
    async def stuck(number: int) -> None:
        got.add(number)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with node:
        for number in range(10):
            node.publish("a", number)
        await got.all(1)
    assert cancelled.is_set()
    assert got == [0]
    assert "stopped before it has handled its last 10 messages" in caplog.text
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("mpreg-subscriber")]


async def test_a_node_that_starts_again_has_its_handlers_again() -> None:
    node, got = new_node(), Got()

    @node.subscriber("a")
    async def take(number: int) -> None:
        got.add(number)

    for number in range(2):
        async with node:
            node.publish("a", number)
            await got.all(number + 1)
    assert got == [0, 1]


class Plain:
    """Nothing that a message can be."""


def no_argument() -> None: ...
def two_arguments(a: int, b: int) -> None: ...
def by_name_only(*, a: int) -> None: ...
def of_no_message(a: Plain) -> None: ...


@pytest.mark.parametrize("call", [no_argument, two_arguments, by_name_only, of_no_message, "text"])
async def test_what_can_not_take_a_message_is_refused_at_once(call: Any) -> None:
    with pytest.raises(ValueError):
        new_node().subscriber("a")(call)


def take(number: int, more: int = 0, *rest: int, **named: int) -> None: ...


@pytest.mark.parametrize(
    "declare",
    [
        lambda node: node.subscriber()(take),
        lambda node: node.subscriber("a", concurrency=0)(take),
        lambda node: node.subscriber("a", buffer=0)(take),
    ],
)
async def test_an_option_out_of_range_is_refused_at_once(declare: Callable[[Node], Any]) -> None:
    with pytest.raises(ValueError):
        declare(new_node())
    with pytest.raises(PubSubError, match="PUBSUB_INVALID_PATTERN"):
        new_node().subscriber("a..b")(take)


async def test_a_subscriber_can_only_be_declared_while_the_node_does_not_run() -> None:
    node = new_node()
    assert node.subscriber("a")(take) is take
    async with node:
        with pytest.raises(RuntimeError, match="runs already"):
            node.subscriber("b")(take)


async def test_the_buffer_is_a_setting(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    node, got = new_node(pubsub=PubSubLimits(handler_messages_max=3)), Got()

    @node.subscriber("a")
    async def count(number: int) -> None:
        got.add(number)

    async with node:
        for number in range(10):
            node.publish("a", number)
        assert await got.all(3) == [7, 8, 9]


# `mpreg.topics`.


async def test_topics_are_counted_by_prefix_while_somebody_looks() -> None:
    node = new_node()
    async with node, connect(node) as client, connect(node) as other:
        looking = asyncio.create_task(client.call("mpreg.topics", depth=2, seconds=0.2))
        while not topics_of(node).looks:
            await asyncio.sleep(0)
        for topic in ("a", "a.b", "a.b.c", "a.b.d", "x.y.z"):
            await other.publish(topic, "12345", ack=True)
        found = await looking
        assert 0.2 <= found["seconds"] < 5
        rates = {each["topic"]: each["messages"] * found["seconds"] for each in found["topics"]}
        assert rates == pytest.approx({"a": 1, "a.b": 1, "a.b.#": 2, "x.y.#": 1}, abs=0.1)
        assert found["topics"][0]["topic"] == "a.b.#", "the busiest first"
        assert found["topics"][0]["bytes"] * found["seconds"] == pytest.approx(12, abs=0.5)
        assert "rest" not in found
        assert not topics_of(node).looks
        assert (await client.call("mpreg.stats"))["topic_exchange"]["active_subscriptions"] == 0


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"seconds": 61}, {"depth": 0}, {"depth": 65}, {"pattern": "a..b"}])
async def test_a_look_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    async with new_node() as node, connect(node) as client:
        with pytest.raises(MpregError) as caught:
            await client.call("mpreg.topics", **wrong)
        assert caught.value.code in ("RPC_INVALID_ARGUMENT", "PUBSUB_INVALID_PATTERN")


async def test_a_look_that_is_given_up_costs_nothing_any_more() -> None:
    async with new_node() as node, connect(node) as client:
        looking = asyncio.create_task(client.call("mpreg.topics", seconds=60))
        while not topics_of(node).looks:
            await asyncio.sleep(0)
        looking.cancel()
        while topics_of(node).looks:
            await asyncio.sleep(0)

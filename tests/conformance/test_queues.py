"""Queues: note, "Message Queue Protocol"; R-Q1 to R-Q8, R-W1, R-W2, R-W6."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from tests.conformance.conftest import Dial
from tests.conformance.raw import Raw

numbers = itertools.count(1)


def new_name(kind: str = "q") -> str:
    return f"{kind}{next(numbers)}"


def ask(raw: Raw, type: str, **payload: Any) -> Any:
    """The payload of the reply, which carries the same `u` and is called as the message."""
    reply = raw.ask({"type": type, "u": "q-1", "payload": payload})
    assert reply.get("type") == (type if type == "queue_statistics" else f"{type}_reply"), reply
    assert reply["u"] == "q-1"
    return reply["payload"]


def refused(raw: Raw, type: str, **payload: Any) -> dict[str, Any]:
    """The error; the connection is as good as before."""
    reply = raw.ask({"type": type, "u": "q-2", "payload": payload})
    assert reply.get("role") == "error-response", reply
    assert reply["u"] == "q-2"
    assert raw.call("echo", "on")["r"] == "on"
    error: dict[str, Any] = reply["error"]
    return error


def create(raw: Raw, **settings: Any) -> str:
    name = new_name()
    assert ask(raw, "create_queue", queue_name=name, **settings) == {"queue_name": name, "created": True}
    return name


def send(raw: Raw, queue: str, payload: Any = None, **fields: Any) -> str:
    sent = ask(raw, "send_message", queue_name=queue, message_payload=payload, **fields)
    assert sent["queue_name"] == queue
    message_id: str = sent["message_id"]
    return message_id


def subscribe(raw: Raw, queue: str, subscriber_id: str = "s1", **fields: Any) -> None:
    reply = ask(raw, "subscribe_queue", queue_name=queue, subscriber_id=subscriber_id, **fields)
    assert reply == {"queue_name": queue, "subscriber_id": subscriber_id}


def receive(raw: Raw, queue: str, **fields: Any) -> list[Any]:
    messages: list[Any] = ask(raw, "receive_message", queue_name=queue, **fields)["messages"]
    return messages


def acknowledge(raw: Raw, queue: str, message: Any, subscriber_id: str = "", **fields: Any) -> str:
    reply = ask(
        raw,
        "acknowledge_message",
        queue_name=queue,
        message_id=message["message_id"],
        subscriber_id=subscriber_id,
        receipt=message["receipt"],
        **{"success": True, **fields},
    )
    assert reply["message_id"] == message["message_id"]
    outcome: str = reply["outcome"]
    return outcome


def pushed(raw: Raw, type: str = "message_pending_ack") -> Any:
    message = raw.receive()
    assert message.get("type") == type, message
    return message["payload"]


def statistics(raw: Raw, queue: str) -> Any:
    return ask(raw, "queue_statistics", queue_name=queue)


# The note's own messages, by every transport and in both encodings.


def test_the_messages_of_the_note_do_what_it_says(raw: Raw) -> None:
    name = new_name("orders-processing")
    created = ask(
        raw,
        "create_queue",
        queue_name=name,
        queue_type="priority",
        max_size=10000,
        default_visibility_timeout_seconds=30.0,
        default_acknowledgment_timeout_seconds=300.0,
        enable_deduplication=True,
        deduplication_window_seconds=300.0,
        enable_dead_letter_queue=True,
        max_retries=3,
        message_ttl_seconds=3600.0,
    )
    assert created == {"queue_name": name, "created": True}
    order = {"order_id": "ORD-123456", "amount": 99.99, "items": [{"sku": "WIDGET-001", "quantity": 2}]}
    sent = ask(
        raw,
        "send_message",
        queue_name=name,
        topic="order.new",
        message_payload=order,
        delivery_guarantee="at_least_once",
        priority=10,
        delay_seconds=0.0,
        visibility_timeout_seconds=30.0,
        max_retries=3,
        acknowledgment_timeout_seconds=300.0,
        headers={"correlation_id": "corr-123"},
    )
    assert sent == {"queue_name": name, "message_id": sent["message_id"], "durability": "memory", "duplicate": False}
    subscribe(raw, name, "order-processor-1", topic_pattern="order.*", metadata={"version": "2.1.0"})
    message = pushed(raw)
    assert message["message_id"] == sent["message_id"]
    assert message["message_payload"] == order
    assert message["topic"] == "order.new"
    assert message["delivery_guarantee"] == "at_least_once"
    assert message["delivered_to"] == ["order-processor-1"]
    assert (message["retry_count"], message["max_retries"], message["priority"]) == (0, 3, 10)
    assert message["headers"] == {"correlation_id": "corr-123"}
    assert message["queue_name"] == name
    assert abs(message["acknowledgment_timeout"] - time.time() - 30) < 20
    assert abs(message["sent_at"] - time.time()) < 60
    reply = ask(
        raw,
        "acknowledge_message",
        queue_name=name,
        message_id=message["message_id"],
        subscriber_id="order-processor-1",
        success=True,
    )
    assert reply == {"message_id": message["message_id"], "outcome": "acknowledged"}
    stats = statistics(raw, name)
    assert stats["queue_name"] == name
    counted = {field: stats[field] for field in stats if field.startswith(("messages_", "current_"))}
    assert {key: value for key, value in counted.items() if value} == {
        "messages_sent": 1,
        "messages_received": 1,
        "messages_acknowledged": 1,
    }
    assert stats["success_rate"] == 1.0
    assert stats["average_processing_time_seconds"] >= 0
    subscriber = {"queue_name": name, "subscriber_id": "order-processor-1"}
    assert ask(raw, "unsubscribe_queue", **subscriber) == subscriber
    assert ask(raw, "delete_queue", queue_name=name) == {"queue_name": name, "removed": 0}


def test_a_payload_passes_between_the_encodings(dial: Dial) -> None:
    text, binary = dial("ws", "json"), dial("tcp", "msgpack")
    queue = create(text)
    for value in ({"a": [1, 2.5, None, True, "ü"]}, [], "plain", 7, None):
        for sender, receiver in ((text, binary), (binary, text), (text, text), (binary, binary)):
            send(sender, queue, value)
            (message,) = receive(receiver, queue)
            assert message["message_payload"] == value
            assert acknowledge(receiver, queue, message) == "acknowledged"


# Creating.


def test_creating_a_queue_again_with_the_same_settings_is_fine(plain: Raw) -> None:
    queue = create(plain, max_size=7)
    assert ask(plain, "create_queue", queue_name=queue, max_size=7)["created"] is False


def test_a_queue_with_other_settings_exists(plain: Raw) -> None:
    queue = create(plain, max_size=7)
    error = refused(plain, "create_queue", queue_name=queue, max_size=8, max_retries=1)
    assert error["code"] == "QUEUE_EXISTS"
    assert error["details"]["fields"] == ["max_size", "max_retries"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue_name", ""),
        ("queue_name", "a{b}"),
        ("queue_name", "a:b"),
        ("queue_name", "a\nb"),
        ("queue_name", " a"),
        ("queue_name", "x" * 201),
        ("queue_name", "orders.dlq"),
        ("queue_type", "stack"),
        ("max_size", 0),
        ("max_size", -1),
        ("default_visibility_timeout_seconds", -1.0),
        ("default_visibility_timeout_seconds", 0),
        ("default_acknowledgment_timeout_seconds", -1),
        ("deduplication_window_seconds", -1),
        ("max_retries", -1),
        ("message_ttl_seconds", -0.5),
        ("message_ttl_seconds", 1e300),
    ],
)
def test_a_queue_that_can_not_be(plain: Raw, field: str, value: Any) -> None:
    error = refused(plain, "create_queue", **{"queue_name": new_name(), field: value})
    assert (error["code"], error["details"]["field"]) == ("QUEUE_INVALID", field)
    assert error["state_changed"] is False


@pytest.mark.parametrize("name", ["ünï", "with space", "a/b", "日本", "a.b.c", "%", "*", "[x]"])
def test_odd_names_are_names(plain: Raw, name: str) -> None:
    queue = new_name(name)
    ask(plain, "create_queue", queue_name=queue)
    send(plain, queue, 1)
    assert receive(plain, queue)[0]["message_payload"] == 1


def test_a_field_of_the_wrong_type_is_named_by_its_path(raw: Raw) -> None:
    error = refused(raw, "create_queue", queue_name=new_name(), max_size="many")
    assert (error["code"], error["details"]["path"]) == ("PROTOCOL_INVALID_MESSAGE", "$.payload.max_size")
    error = refused(raw, "send_message", queue_name="q")
    assert (error["code"], error["details"]["path"]) == ("PROTOCOL_INVALID_MESSAGE", "$.payload.message_payload")


# Sending.


def test_an_unknown_queue_is_not_made_by_sending(plain: Raw) -> None:
    name = new_name()
    for type, fields in (
        ("send_message", {"message_payload": 1}),
        ("send_message", {"message_payload": 1, "delivery_guarantee": "fire_and_forget"}),
        ("subscribe_queue", {"subscriber_id": "s"}),
        ("receive_message", {}),
        ("receive_message", {"wait_seconds": 5}),
        ("acknowledge_message", {"message_id": "msg-1-0000000001"}),
        ("extend_visibility", {"message_id": "m", "visibility_timeout_seconds": 1}),
        ("purge_queue", {}),
        ("delete_queue", {}),
        ("peek", {}),
        ("redrive", {}),
        ("queue_statistics", {}),
    ):
        assert refused(plain, type, queue_name=name, **fields)["code"] == "QUEUE_NOT_FOUND", type


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("delivery_guarantee", "exactly_once"),
        ("topic", ""),
        ("topic", "a..b"),
        ("topic", "a.*"),
        ("topic", "x" * 1025),
        ("priority", 1001),
        ("delay_seconds", -1),
        ("message_ttl_seconds", -1),
        ("visibility_timeout_seconds", -1),
        ("acknowledgment_timeout_seconds", -1),
        ("max_retries", -1),
        ("required_acknowledgments", 0),
        ("deduplication_id", ""),
        ("headers", {"a": "x" * 20_000}),
        ("message_payload", "x" * 1_000_001),
    ],
)
def test_a_message_that_can_not_be(plain: Raw, field: str, value: Any) -> None:
    queue = create(plain)
    error = refused(plain, "send_message", **{"queue_name": queue, "message_payload": 1, field: value})
    assert (error["code"], error["details"]["field"]) == ("QUEUE_INVALID", field)
    assert statistics(plain, queue)["messages_sent"] == 0


def test_a_full_queue_stores_nothing_and_remembers_nothing(plain: Raw) -> None:
    queue = create(plain, max_size=1)
    send(plain, queue, 1)
    error = refused(plain, "send_message", queue_name=queue, message_payload=2, deduplication_id="two")
    assert (error["code"], error["retryable"], error["state_changed"]) == ("QUEUE_FULL", True, False)
    acknowledge(plain, queue, receive(plain, queue)[0])
    assert ask(plain, "send_message", queue_name=queue, message_payload=2, deduplication_id="two")["duplicate"] is False


def test_a_duplicate_answers_with_the_id_of_the_first(plain: Raw) -> None:
    queue = create(plain, enable_deduplication=True)
    first = send(plain, queue, {"a": 1}, topic="t")
    again = ask(plain, "send_message", queue_name=queue, message_payload={"a": 1}, topic="t")
    assert (again["message_id"], again["duplicate"]) == (first, True)
    assert send(plain, queue, {"a": 1}, topic="u") != first
    assert send(plain, queue, {"a": 2}, topic="t") != first
    by_id = send(plain, queue, 1, deduplication_id="x")
    assert send(plain, queue, 2, deduplication_id="x") == by_id
    assert statistics(plain, queue)["messages_sent"] == 4


def test_many_are_answered_one_by_one(raw: Raw) -> None:
    queue = create(raw, max_size=3)
    messages = [
        {"message_payload": 1, "topic": "a"},
        {"message_payload": 2, "topic": "a.."},
        {"message_payload": 3, "deduplication_id": "d"},
        {"message_payload": 4, "deduplication_id": "d"},
        {"message_payload": 5},
        {"message_payload": 6},
    ]
    reply = ask(raw, "send_messages", queue_name=queue, messages=messages)
    results = reply["results"]
    assert [one.get("error", {}).get("code") for one in results] == [
        None,
        "QUEUE_INVALID",
        None,
        None,
        None,
        "QUEUE_FULL",
    ]
    assert results[2]["message_id"] == results[3]["message_id"]
    assert results[3]["duplicate"] is True
    assert reply["durability"] == "memory"
    got = receive(raw, queue, max_messages=10)
    assert [one["message_payload"] for one in got] == [1, 3, 5]
    done = [{"message_id": one["message_id"], "receipt": one["receipt"]} for one in got]
    reply = ask(raw, "acknowledge_messages", queue_name=queue, subscriber_id="", messages=[*done, done[0]])
    assert reply["outcomes"] == ["acknowledged", "acknowledged", "acknowledged", "stale"]


@pytest.mark.parametrize("count", [0, 1001])
def test_none_or_too_many_at_once(plain: Raw, count: int) -> None:
    queue = create(plain)
    error = refused(plain, "send_messages", queue_name=queue, messages=[{"message_payload": 1}] * count)
    assert (error["code"], error["details"]["limit"]) == ("QUEUE_INVALID", 1000)


# Order.


def test_sends_of_one_connection_to_a_fifo_queue_keep_their_order(dial: Dial) -> None:
    sender, receiver = dial("tcp", "msgpack"), dial("ws", "json")
    queue = create(sender, queue_type="fifo")
    for n in range(300):
        sender.send({"type": "send_message", "payload": {"queue_name": queue, "message_payload": n}})
    subscribe(receiver, queue, prefetch=50)
    for n in range(300):
        message = pushed(receiver)
        assert message["message_payload"] == n
        receiver.send(
            {
                "type": "acknowledge_message",
                "payload": {
                    "queue_name": queue,
                    "message_id": message["message_id"],
                    "subscriber_id": "s1",
                    "success": True,
                },
            }
        )
        assert receiver.receive()["payload"]["outcome"] == "acknowledged"


def test_a_later_message_of_a_group_waits_for_the_earlier_one(plain: Raw) -> None:
    queue = create(plain, queue_type="fifo")
    for payload, group in ((1, "a"), (2, "a"), (3, "b")):
        send(plain, queue, payload, group=group)
    first = receive(plain, queue, max_messages=10)
    assert [one["message_payload"] for one in first] == [1, 3]
    assert receive(plain, queue, max_messages=10) == []
    acknowledge(plain, queue, first[0])
    assert [one["message_payload"] for one in receive(plain, queue, max_messages=10)] == [2]


def test_higher_priority_first_then_as_sent(plain: Raw) -> None:
    queue = create(plain, queue_type="priority")
    for payload, priority in ((1, 0), (2, 5), (3, 5), (4, -3), (5, 9)):
        send(plain, queue, payload, priority=priority)
    assert [one["message_payload"] for one in receive(plain, queue, max_messages=10)] == [5, 2, 3, 1, 4]


@pytest.mark.parametrize("queue_type", ["fifo", "priority", "delay"])
def test_a_delayed_message_comes_when_it_is_due(plain: Raw, queue_type: str) -> None:
    queue = create(plain, queue_type=queue_type)
    send(plain, queue, 1, delay_seconds=0.3)
    assert receive(plain, queue) == []
    assert statistics(plain, queue)["current_delayed_count"] == 1
    (message,) = receive(plain, queue, wait_seconds=10)
    assert message["message_payload"] == 1


# Receiving.


def test_a_pull_waits_for_a_message(dial: Dial) -> None:
    sender, receiver = dial("ws", "json"), dial("tcp", "msgpack")
    queue = create(sender)
    receiver.send({"type": "receive_message", "u": "r", "payload": {"queue_name": queue, "wait_seconds": 20}})
    assert receiver.call("echo", 1)["r"] == 1  # it does not hold up the connection
    send(sender, queue, "late")
    reply = receiver.receive()
    assert (reply["u"], reply["payload"]["messages"][0]["message_payload"]) == ("r", "late")


def test_a_pull_ends_without_a_message(plain: Raw) -> None:
    assert receive(plain, create(plain), wait_seconds=0.1) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_messages", 0),
        ("max_messages", 501),
        ("wait_seconds", -1),
        ("wait_seconds", 20.5),
        ("visibility_timeout_seconds", -1),
        ("topic_pattern", "a.b*"),
        ("topic_pattern", ""),
    ],
)
def test_a_pull_that_can_not_be(plain: Raw, field: str, value: Any) -> None:
    error = refused(plain, "receive_message", **{"queue_name": create(plain), field: value})
    assert (error["code"], error["details"]["field"]) == ("QUEUE_INVALID", field)


def test_a_pattern_takes_its_topics_only(plain: Raw) -> None:
    queue = create(plain)
    for topic in ("order.new", "order.new.eu", "invoice.new"):
        send(plain, queue, topic, topic=topic)
    assert [one["topic"] for one in receive(plain, queue, topic_pattern="order.*", max_messages=9)] == ["order.new"]
    assert [one["topic"] for one in receive(plain, queue, topic_pattern="order.#", max_messages=9)] == ["order.new.eu"]


def test_subscribers_compete(dial: Dial) -> None:
    sender, one, two = dial("ws", "json"), dial("ws", "json"), dial("tcp", "msgpack")
    queue = create(sender)
    subscribe(one, queue, "one", prefetch=5)
    subscribe(two, queue, "two", prefetch=5)
    for n in range(10):
        send(sender, queue, n)
    got = [pushed(raw)["message_payload"] for raw in (one, two) for _ in range(5)]
    assert sorted(got) == list(range(10))


def test_no_more_than_prefetch_are_with_a_subscriber(dial: Dial) -> None:
    raw, sender = dial("ws", "json"), dial("ws", "json")
    queue = create(raw)
    for n in range(5):
        send(sender, queue, n)
    subscribe(raw, queue, prefetch=2)
    first, second = pushed(raw), pushed(raw)
    assert statistics(sender, queue)["current_in_flight_count"] == 2
    assert raw.call("echo", "quiet")["r"] == "quiet"
    assert acknowledge(raw, queue, first, "s1") == "acknowledged"
    assert pushed(raw)["message_payload"] == 2
    assert second["message_payload"] == 1


def test_a_message_waits_until_there_is_a_subscriber(dial: Dial) -> None:
    sender, late = dial("ws", "json"), dial("ws", "json")
    queue = create(sender)
    send(sender, queue, "patient")
    subscribe(late, queue)
    assert pushed(late)["message_payload"] == "patient"
    assert statistics(sender, queue)["dead_letters"] == 0


def test_a_subscriber_id_in_use_is_refused(dial: Dial) -> None:
    one, two = dial("ws", "json"), dial("ws", "json")
    queue = create(one)
    subscribe(one, queue, "me")
    error = refused(two, "subscribe_queue", queue_name=queue, subscriber_id="me")
    assert (error["code"], error["details"]["field"]) == ("QUEUE_EXISTS", "subscriber_id")
    ask(one, "unsubscribe_queue", queue_name=queue, subscriber_id="me")
    subscribe(two, queue, "me")


def test_an_owner_takes_its_subscription_over(dial: Dial) -> None:
    one, two = dial("ws", "json"), dial("ws", "json")
    queue = create(one)
    subscribe(one, queue, "me", owner="secret")
    assert refused(two, "subscribe_queue", queue_name=queue, subscriber_id="me", owner="other")["code"] == (
        "QUEUE_EXISTS"
    )
    subscribe(two, queue, "me", owner="secret")
    send(one, queue, "here")
    assert pushed(two)["message_payload"] == "here"


@pytest.mark.parametrize("pattern", ["", "a..b", "a*", "x" * 1025])
def test_a_wrong_pattern_is_refused(plain: Raw, pattern: str) -> None:
    error = refused(plain, "subscribe_queue", queue_name=create(plain), subscriber_id="s", topic_pattern=pattern)
    assert (error["code"], error["details"]["field"]) == ("QUEUE_INVALID", "topic_pattern")


def test_with_auto_acknowledge_what_is_pushed_is_done(dial: Dial) -> None:
    raw, sender = dial("ws", "json"), dial("ws", "json")
    queue = create(sender)
    subscribe(raw, queue, auto_acknowledge=True, prefetch=1)
    for n in range(5):
        send(sender, queue, n)
    assert [pushed(raw)["message_payload"] for _ in range(5)] == list(range(5))
    assert statistics(sender, queue)["messages_acknowledged"] == 5


def test_deleting_a_queue_ends_whoever_waits_on_it(dial: Dial) -> None:
    waiter, subscriber, other = dial("ws", "json"), dial("tcp", "msgpack"), dial("ws", "json")
    queue = create(other)
    waiter.send({"type": "receive_message", "u": "w", "payload": {"queue_name": queue, "wait_seconds": 20}})
    subscribe(subscriber, queue)
    assert waiter.call("echo", 1)["r"] == 1
    ask(other, "delete_queue", queue_name=queue)
    assert waiter.receive()["error"]["code"] == "QUEUE_NOT_FOUND"
    ended = pushed(subscriber, "queue_subscription_ended")
    assert (ended["queue_name"], ended["error"]["code"]) == (queue, "QUEUE_NOT_FOUND")


# Acknowledging.


def test_an_acknowledgement_by_who_does_not_hold_the_message_changes_nothing(dial: Dial) -> None:
    holder, other = dial("ws", "json"), dial("ws", "json")
    queue = create(holder)
    message_id = send(holder, queue, 1)
    subscribe(holder, queue, "holder")
    receipt = pushed(holder)["receipt"]
    for fields in (
        {"message_id": message_id, "subscriber_id": "holder"},  # without a receipt, from another connection
        {"message_id": message_id, "subscriber_id": "thief", "receipt": receipt},
        {"message_id": message_id, "subscriber_id": "", "receipt": receipt},
        {"message_id": message_id, "subscriber_id": "holder", "receipt": receipt[:-3] + "9/1"},
        {"message_id": message_id, "subscriber_id": "holder", "receipt": "rubbish"},
        {"message_id": "msg-1-00000000ff", "subscriber_id": "holder", "receipt": receipt},
        {"message_id": "nobody", "subscriber_id": "holder"},
    ):
        for success in (True, False):
            error = refused(other, "acknowledge_message", queue_name=queue, success=success, **fields)
            assert error["code"] == "QUEUE_STALE_RECEIPT", fields
    assert statistics(other, queue)["current_in_flight_count"] == 1
    message = {"message_id": message_id, "receipt": receipt}
    assert acknowledge(holder, queue, message, "holder") == "acknowledged"
    error = refused(
        holder, "acknowledge_message", queue_name=queue, message_id=message_id, subscriber_id="holder", receipt=receipt
    )
    assert error["code"] == "QUEUE_STALE_RECEIPT"


def test_a_lease_that_runs_out_makes_the_message_ready_again(plain: Raw) -> None:
    queue = create(plain)
    send(plain, queue, 1)
    (first,) = receive(plain, queue, visibility_timeout_seconds=0.1)
    (second,) = receive(plain, queue, wait_seconds=10)
    assert (second["message_id"], second["retry_count"]) == (first["message_id"], 1)
    assert second["receipt"] != first["receipt"]
    error = refused(
        plain,
        "acknowledge_message",
        queue_name=queue,
        message_id=first["message_id"],
        receipt=first["receipt"],
    )
    assert error["code"] == "QUEUE_STALE_RECEIPT"
    assert acknowledge(plain, queue, second) == "acknowledged"


def test_a_lease_can_be_extended(plain: Raw) -> None:
    queue = create(plain)
    send(plain, queue, 1)
    (message,) = receive(plain, queue, visibility_timeout_seconds=0.5)
    fields = {"message_id": message["message_id"], "receipt": message["receipt"]}
    reply = ask(plain, "extend_visibility", queue_name=queue, visibility_timeout_seconds=60, **fields)
    assert reply["acknowledgment_timeout"] > message["acknowledgment_timeout"] + 30
    assert receive(plain, queue, wait_seconds=0.7) == []
    many = {"subscriber_id": "", "messages": [fields, {"message_id": "x", "receipt": "y"}]}
    reply = ask(plain, "extend_visibilities", queue_name=queue, visibility_timeout_seconds=0, **many)
    assert reply["acknowledgment_timeouts"][0] > 0
    assert reply["acknowledgment_timeouts"][1] == 0
    assert receive(plain, queue, wait_seconds=10)[0]["message_id"] == message["message_id"]
    error = refused(plain, "extend_visibility", queue_name=queue, visibility_timeout_seconds=1, **fields)
    assert error["code"] == "QUEUE_STALE_RECEIPT"


def test_without_success_a_message_comes_back_after_a_backoff(plain: Raw) -> None:
    queue = create(plain)
    send(plain, queue, 1)
    (message,) = receive(plain, queue)
    assert acknowledge(plain, queue, message, success=False) == "retry"
    assert receive(plain, queue) == []
    (again,) = receive(plain, queue, wait_seconds=10)
    assert again["retry_count"] == 1
    assert acknowledge(plain, queue, again, success=False, retry_after_seconds=0) == "retry"
    assert receive(plain, queue)[0]["retry_count"] == 2


def test_a_released_message_has_not_been_delivered(plain: Raw) -> None:
    queue = create(plain)
    send(plain, queue, 1)
    assert acknowledge(plain, queue, receive(plain, queue)[0], success=False, release=True) == "retry"
    assert receive(plain, queue)[0]["retry_count"] == 0


def test_after_max_retries_a_message_is_a_dead_letter_with_its_reason(raw: Raw) -> None:
    queue = create(raw, max_retries=1)
    message_id = send(raw, queue, "poison", topic="t.x", headers={"k": "v"})
    (first,) = receive(raw, queue, subscriber_id="worker")
    assert acknowledge(raw, queue, first, "worker", success=False, retry_after_seconds=0) == "retry"
    (second,) = receive(raw, queue, subscriber_id="worker")
    assert acknowledge(raw, queue, second, "worker", success=False, reason="bad input") == "dead_letter"
    (dead,) = ask(raw, "peek", queue_name=f"{queue}.dlq")["messages"]
    assert (dead["message_payload"], dead["topic"], dead["headers"]) == ("poison", "t.x", {"k": "v"})
    why = dead["why"]
    assert (why["message_id"], why["reason"], why["deliveries"], why["by"]) == (message_id, "bad input", 2, "worker")
    assert abs(why["at"] - time.time()) < 60
    assert statistics(raw, queue)["dead_letters"] == 1
    assert ask(raw, "redrive", queue_name=queue) == {"queue_name": queue, "redriven": 1, "left": 0}
    (again,) = receive(raw, queue)
    assert (again["message_payload"], again["retry_count"]) == ("poison", 0)


def test_a_message_can_be_given_up_at_once(plain: Raw) -> None:
    queue = create(plain)
    send(plain, queue, 1)
    outcome = acknowledge(plain, queue, receive(plain, queue)[0], success=False, dead_letter=True, reason="no")
    assert outcome == "dead_letter"
    (dead,) = receive(plain, f"{queue}.dlq")
    assert dead["message_payload"] == 1


def test_a_message_expires(plain: Raw) -> None:
    queue = create(plain, message_ttl_seconds=0.1)
    send(plain, queue, 1)
    assert receive(plain, queue, topic_pattern="other", wait_seconds=0.3) == []
    stats = statistics(plain, queue)
    assert (stats["messages_expired"], stats["current_queue_size"], stats["dead_letters"]) == (1, 0, 0)


# Guarantees.


def test_fire_and_forget_reaches_everyone_who_is_there_and_is_stored_nowhere(dial: Dial) -> None:
    sender, one, two, other = (dial("ws", "json"), dial("tcp", "msgpack"), dial("ws", "json"), dial("ws", "json"))
    queue = create(sender)
    subscribe(one, queue, "one")
    subscribe(two, queue, "two", topic_pattern="a.#")
    subscribe(other, queue, "other", topic_pattern="b")
    sent = ask(
        sender,
        "send_message",
        queue_name=queue,
        topic="a.b",
        message_payload={"page": "/"},
        delivery_guarantee="fire_and_forget",
    )
    assert (sent["durability"], sent["delivered_to"]) == ("none", ["one", "two"])
    for raw in (one, two):
        message = pushed(raw, "message_delivered")
        assert message["message_id"] == sent["message_id"]
        assert message["message_payload"] == {"page": "/"}
        assert message["delivered_to"] == ["one", "two"]
        assert message["delivery_guarantee"] == "fire_and_forget"
        assert abs(message["delivery_timestamp"] - time.time()) < 60
    assert other.call("echo", "nothing")["r"] == "nothing"
    stats = statistics(sender, queue)
    assert (stats["messages_sent"], stats["messages_forgotten"], stats["current_queue_size"]) == (0, 1, 0)


def test_a_broadcast_reaches_every_subscriber_that_there_was(dial: Dial) -> None:
    sender, one, two = dial("ws", "json"), dial("ws", "json"), dial("tcp", "msgpack")
    queue = create(sender)
    subscribe(one, queue, "one")
    subscribe(two, queue, "two")
    sent = ask(sender, "send_message", queue_name=queue, message_payload=1, delivery_guarantee="broadcast")
    assert sent["delivered_to"] == ["one", "two"]
    late = dial("ws", "json")
    subscribe(late, queue, "late")
    first = pushed(one, "broadcast_message")
    assert first["message_id"] == sent["message_id"]
    assert first["delivered_to"] == ["one", "two"]
    assert (first["acknowledged_by"], first["pending_acknowledgments"]) == ([], ["one", "two"])
    assert acknowledge(one, queue, first, "one") == "acknowledged"
    assert acknowledge(two, queue, pushed(two, "broadcast_message"), "two") == "acknowledged"
    assert late.call("echo", "nothing")["r"] == "nothing"
    assert statistics(sender, queue)["current_queue_size"] == 0


def test_a_sender_can_wait_for_a_quorum(dial: Dial) -> None:
    sender, *voters = (dial("ws", "json") for _ in range(4))
    queue = create(sender)
    for n, voter in enumerate(voters):
        subscribe(voter, queue, f"v{n}")
    payload = {"queue_name": queue, "message_payload": {"term": 42}, "delivery_guarantee": "quorum"}
    sender.send({"type": "send_message", "u": "w", "payload": {**payload, "wait_seconds": 20}})
    for n in range(2):
        message = pushed(voters[n], "quorum_message")
        assert (message["required_acknowledgments"], message["quorum_reached"]) == (2, False)
        acknowledge(voters[n], queue, message, f"v{n}")
    told = sender.receive()["payload"]
    assert told["delivered_to"] == ["v0", "v1", "v2"]
    assert told["acknowledged_by"] == ["v0", "v1"]
    assert (told["required_acknowledgments"], told["quorum_reached"]) == (2, True)


def test_a_sender_waits_no_longer_than_it_said(dial: Dial) -> None:
    sender, voter = dial("ws", "json"), dial("ws", "json")
    queue = create(sender)
    subscribe(voter, queue, "v")
    fields = {"message_payload": 1, "delivery_guarantee": "quorum", "wait_seconds": 0.1}
    told = ask(sender, "send_message", queue_name=queue, **fields)
    assert (told["quorum_reached"], told["pending_acknowledgments"]) == (False, ["v"])


def test_a_quorum_of_more_than_there_are_is_refused(plain: Raw) -> None:
    queue = create(plain)
    fields = {"message_payload": 1, "delivery_guarantee": "quorum", "required_acknowledgments": 1}
    error = refused(plain, "send_message", queue_name=queue, **fields)
    assert (error["code"], error["details"]["field"]) == ("QUEUE_INVALID", "required_acknowledgments")
    assert statistics(plain, queue)["messages_sent"] == 0


# The queue as a whole.


def test_queues_are_listed_in_pages(raw: Raw) -> None:
    prefix = new_name("listed-")
    for n in range(3):
        ask(raw, "create_queue", queue_name=f"{prefix}-{n}", queue_type="fifo")
    send(raw, f"{prefix}-1", 1)
    page = ask(raw, "list_queues", prefix=f"{prefix}-", limit=2)
    assert page["more"] is True
    assert page["queues"][1] == {
        "queue_name": f"{prefix}-1",
        "queue_type": "fifo",
        "current_queue_size": 1,
        "current_in_flight_count": 0,
        "dead_letters": 0,
    }
    rest = ask(raw, "list_queues", prefix=f"{prefix}-", limit=2, after=page["queues"][-1]["queue_name"])
    assert ([one["queue_name"] for one in rest["queues"]], rest["more"]) == ([f"{prefix}-2"], False)


def test_peeking_takes_nothing(plain: Raw) -> None:
    queue = create(plain)
    for n in range(3):
        send(plain, queue, n)
    for _ in range(2):
        messages = ask(plain, "peek", queue_name=queue, max_messages=2)["messages"]
        assert [(one["message_payload"], one["retry_count"]) for one in messages] == [(0, 0), (1, 0)]
    assert statistics(plain, queue)["messages_received"] == 0


def test_a_purged_queue_is_empty_and_receipts_are_outdated(plain: Raw) -> None:
    queue = create(plain)
    for n in range(3):
        send(plain, queue, n)
    (message,) = receive(plain, queue)
    assert ask(plain, "purge_queue", queue_name=queue) == {"queue_name": queue, "removed": 3}
    error = refused(
        plain,
        "acknowledge_message",
        queue_name=queue,
        message_id=message["message_id"],
        receipt=message["receipt"],
    )
    assert error["code"] == "QUEUE_STALE_RECEIPT"
    assert statistics(plain, queue)["current_queue_size"] == 0


def test_a_subscriber_that_asks_for_batches_gets_them(raw: Raw) -> None:
    queue = create(raw)
    for n in range(5):
        send(raw, queue, n)
    subscribe(raw, queue, "s", batch=True, prefetch=10)
    got: list[Any] = []
    while len(got) < 5:
        batch = pushed(raw, "messages_pending_ack")
        assert (batch["queue_name"], batch["subscriber_id"]) == (queue, "s")
        got += batch["messages"]
    assert [one["message_payload"] for one in got] == list(range(5))
    done = [{"message_id": one["message_id"]} for one in got]  # handed out by this very connection: no receipt needed
    reply = ask(raw, "acknowledge_messages", queue_name=queue, subscriber_id="s", messages=done)
    assert reply["outcomes"] == ["acknowledged"] * 5


# Recurring sends.


def test_a_schedule_is_made_changed_listed_and_ended(raw: Raw) -> None:
    name = new_name("schedule-")
    asked = {"schedule_name": name, "cron": "0 3 * * *", "queue_name": "reports", "message_payload": {"kind": "daily"}}
    made = ask(raw, "schedule_message", **asked)
    assert (made["schedule_name"], made["created"]) == (name, True)
    assert time.gmtime(made["next_at"])[3:6] == (3, 0, 0)
    changed = ask(raw, "schedule_message", **{**asked, "cron": "30 4 * * *", "timezone": "Asia/Tokyo"})
    assert changed["created"] is False
    assert time.gmtime(changed["next_at"])[3:5] == (19, 30)
    page = ask(raw, "list_schedules", after=name[:-1])
    (listed,) = [one for one in page["schedules"] if one["schedule_name"] == name]
    assert (listed["cron"], listed["message_payload"]) == ("30 4 * * *", {"kind": "daily"})
    assert ask(raw, "delete_schedule", schedule_name=name) == {"schedule_name": name, "deleted": True}
    assert ask(raw, "delete_schedule", schedule_name=name)["deleted"] is False


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cron", "60 * * * *"),
        ("cron", "0 0 31 2 *"),
        ("timezone", "Mars/Olympus"),
        ("queue_name", "a{b}"),
        ("topic", "a.#"),
        ("priority", 2000),
        ("schedule_name", ""),
    ],
)
def test_a_schedule_that_can_not_be(plain: Raw, field: str, value: Any) -> None:
    asked = {"schedule_name": "s", "cron": "@daily", "queue_name": "q", "message_payload": 1}
    error = refused(plain, "schedule_message", **{**asked, field: value})
    assert (error["code"], error["details"]["field"]) == ("QUEUE_INVALID", field)

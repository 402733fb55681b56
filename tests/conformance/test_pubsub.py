"""Topics: note, "Pub/Sub Protocol"; R-P1 to R-P6, R-W6, R-W9."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from tests.conformance.conftest import Dial
from tests.conformance.raw import ENDPOINTS, Endpoint, Raw

numbers = itertools.count(1)


def new_name() -> str:
    """A first level, or an id, that no other test uses."""
    return f"t{next(numbers)}"


def publish(raw: Raw, topic: str, payload: Any = None, **message: Any) -> None:
    raw.send({"role": "pubsub-publish", "u": "pub-1", "message": {"topic": topic, "payload": payload, **message}})


def publish_surely(raw: Raw, topic: str, payload: Any = None, **message: Any) -> Any:
    fields = {"topic": topic, "payload": payload, **message}
    return raw.ask({"role": "pubsub-publish", "u": "pub-1", "ack": True, "message": fields})


def subscription(id: str, *patterns: str, exact_match: bool = False, **fields: Any) -> dict[str, Any]:
    return {
        "role": "pubsub-subscribe",
        "u": "sub-22222",
        "ack": True,
        "subscription": {
            "subscription_id": id,
            "patterns": [{"pattern": pattern, "exact_match": exact_match} for pattern in patterns],
            **fields,
        },
    }


def subscribe(raw: Raw, *patterns: str, **fields: Any) -> str:
    """Acknowledged before this returns."""
    id = new_name()
    ack = raw.ask(subscription(id, *patterns, **fields))
    assert ack["role"] == "pubsub-ack"
    assert ack["success"] is True
    assert ack["error"] is None
    assert (ack["operation_id"], ack["u"]) == (id, "sub-22222")
    return id


def notification(raw: Raw) -> Any:
    message = raw.receive()
    assert message["role"] == "pubsub-notification"
    return message


def payloads(raw: Raw, count: int) -> list[Any]:
    return [notification(raw)["message"]["payload"] for _ in range(count)]


def assert_silent(raw: Raw) -> None:
    """Nothing came before the answer to this."""
    assert raw.call("echo", "silence")["r"] == "silence"


def refused(raw: Raw, message: Any) -> dict[str, Any]:
    """The error; the connection is as good as before."""
    reply = raw.ask(message)
    assert reply["role"] == "error-response"
    assert_silent(raw)
    error: dict[str, Any] = reply["error"]
    return error


def refused_publish(raw: Raw, **message: Any) -> dict[str, Any]:
    return refused(raw, {"role": "pubsub-publish", "u": "p", "message": message})


# Publishing and subscribing, by every transport and in both encodings.


def test_a_notification_is_that_of_the_note(raw: Raw) -> None:
    name = new_name()
    id = subscribe(raw, f"{name}.*.building1.#", "alerts.critical.*")
    message = {
        "topic": f"{name}.temperature.building1.floor2",
        "payload": {"value": 23.5, "unit": "celsius", "sensor_id": "temp_001"},
        "timestamp": 1640995200.123,
        "message_id": f"msg-{name}",
        "publisher": "sensor-gateway-01",
        "headers": {"content-type": "application/json", "priority": "normal"},
    }
    routed = {**message, "routing_path": ["cluster1", "cluster2"], "current_hop": 0}
    raw.send({"role": "pubsub-publish", "u": "pub-11111", "message": routed})
    got = notification(raw)
    assert got["message"] == message
    assert got["subscription_id"] == id
    assert isinstance(got["u"], str)
    assert "backlog" not in got
    assert_silent(raw)


@pytest.mark.parametrize("publisher", ["json", "msgpack"])
@pytest.mark.parametrize("subscriber", ENDPOINTS, ids=str)
def test_a_payload_arrives_in_the_encoding_of_the_subscriber(dial: Dial, publisher: str, subscriber: Endpoint) -> None:
    name = new_name()
    out, into = dial("ws", publisher), dial(subscriber.scheme, subscriber.encoding)
    subscribe(into, f"{name}.#")
    for payload in ({"é": [1, 2.5, None, True, "\U0001f600"]}, [], 0, "", None, 2**53, {"deep": [[[{"x": {}}]]]}):
        publish(out, f"{name}.x", payload)
        assert notification(into)["message"]["payload"] == payload


def test_an_id_and_a_time_are_made_by_the_node(raw: Raw) -> None:
    """R-P6."""
    name = new_name()
    subscribe(raw, name)
    before = time.time()
    publish(raw, name)
    publish(raw, name)
    first, second = notification(raw)["message"], notification(raw)["message"]
    assert first["message_id"] != second["message_id"]
    assert before - 1 <= first["timestamp"] <= time.time() + 1


def test_notifications_have_a_u_each(raw: Raw) -> None:
    name = new_name()
    subscribe(raw, name)
    for _ in range(3):
        publish(raw, name)
    assert len({notification(raw)["u"] for _ in range(3)}) == 3


def test_nothing_is_acknowledged_unless_it_was_asked_for(raw: Raw) -> None:
    """R-W9."""
    name = new_name()
    request = subscription(new_name(), name)
    del request["ack"]
    raw.send(request)
    publish(raw, f"{name}.nobody")
    raw.send({"role": "pubsub-unsubscribe", "u": "x", "subscription_id": request["subscription"]["subscription_id"]})
    assert_silent(raw)


def test_a_publish_is_acknowledged_when_it_asks_for_it(raw: Raw) -> None:
    ack = publish_surely(raw, new_name(), 1, message_id="msg-1")
    assert ack == {
        "role": "pubsub-ack",
        "u": "pub-1",
        "operation_id": "msg-1",
        "success": True,
        "error": None,
    }


def test_messages_of_one_publish_are_published_in_order(raw: Raw) -> None:
    name = new_name()
    subscribe(raw, f"{name}.#")
    messages = [{"topic": f"{name}.{number % 3}", "payload": number} for number in range(100)]
    raw.send({"role": "pubsub-publish", "u": "p", "messages": messages})
    assert payloads(raw, 100) == list(range(100))


def test_publishes_of_one_connection_to_one_topic_keep_their_order(raw: Raw, dial: Dial) -> None:
    """R-W6."""
    name = new_name()
    subscribe(raw, name)
    publisher = dial("tcp", "msgpack")
    for number in range(500):
        publish(publisher, name, number)
    assert payloads(raw, 500) == list(range(500))


def test_a_batch_subscription_gets_several_messages_in_one_notification(raw: Raw) -> None:
    name = new_name()
    id = subscribe(raw, name, batch=True)
    messages = [{"topic": name, "payload": number} for number in range(10)]
    raw.send({"role": "pubsub-publish", "u": "p", "messages": messages})
    got = notification(raw)
    assert [message["payload"] for message in got["messages"]] == list(range(10))
    assert got["subscription_id"] == id
    assert len(got["positions"]) == 1


def test_reply_to_is_passed_on(raw: Raw) -> None:
    """R-P6."""
    name = new_name()
    subscribe(raw, name)
    publish(raw, name, 1, reply_to="answers.here")
    assert notification(raw)["message"]["reply_to"] == "answers.here"


# Patterns.


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("sensors.*", ["sensors.temperature"], ["sensors.temperature.room1", "sensors"]),
        ("sensors.#", ["sensors.temperature", "sensors.temperature.room1", "sensors"], ["sensor", "x.sensors"]),
        ("sensors.*.room1", ["sensors.temperature.room1", "sensors.humidity.room1"], ["sensors.room1"]),
        ("#", ["a", "a.b.c"], []),
        ("*.#.b", ["a.b", "a.x.b", "a.x.y.b"], ["b", "a.b.c"]),
        ("#.a.#.b.#", ["a.b", "x.a.y.b.z"], ["b.a"]),
    ],
)
def test_patterns_match_as_in_the_note(plain: Raw, pattern: str, matching: list[str], other: list[str]) -> None:
    """R-P1."""
    name = new_name()
    subscribe(plain, f"{name}.{pattern}")
    for topic in (*other, *matching):
        publish(plain, f"{name}.{topic}", topic)
    assert payloads(plain, len(matching)) == matching
    assert_silent(plain)


def test_an_exact_match_takes_the_pattern_literally(plain: Raw) -> None:
    name = new_name()
    subscribe(plain, f"{name}.a", f"{name}.*", f"{name}.c#", exact_match=True)
    for topic in ("a", "b", "c#"):
        publish(plain, f"{name}.{topic}", topic)
    assert payloads(plain, 2) == ["a", "c#"]
    assert_silent(plain)


def test_a_message_comes_once_however_many_patterns_match(plain: Raw) -> None:
    """R-P2."""
    name = new_name()
    subscribe(plain, f"{name}.#", f"{name}.a", f"{name}.*", f"#.{name}.#")
    publish(plain, f"{name}.a", 1)
    assert payloads(plain, 1) == [1]
    assert_silent(plain)


def test_each_subscription_of_a_connection_gets_the_message(plain: Raw) -> None:
    name = new_name()
    ids = {subscribe(plain, f"{name}.#"), subscribe(plain, f"{name}.*")}
    publish(plain, f"{name}.a")
    assert {notification(plain)["subscription_id"] for _ in range(2)} == ids


# Whose a subscription is (R-P3).


def test_after_an_unsubscribe_nothing_comes(raw: Raw) -> None:
    name = new_name()
    id = subscribe(raw, name)
    ack = raw.ask({"role": "pubsub-unsubscribe", "u": "x", "ack": True, "subscription_id": id})
    assert (ack["role"], ack["operation_id"], ack["u"]) == ("pubsub-ack", id, "x")
    publish(raw, name)
    assert_silent(raw)


@pytest.mark.parametrize("own", [True, False], ids=["the same connection", "another connection"])
def test_a_subscription_id_in_use_is_refused(plain: Raw, dial: Dial, own: bool) -> None:
    name = new_name()
    id = subscribe(plain, f"{name}.a")
    other = plain if own else dial("ws", "json")
    error = refused(other, subscription(id, f"{name}.b"))
    assert error["code"] == "PUBSUB_SUBSCRIPTION_EXISTS"
    assert error["details"]["field"] == "subscription_id"
    publish(plain, f"{name}.b")
    publish(plain, f"{name}.a", 1)
    assert payloads(plain, 1) == [1]
    assert_silent(other)


def test_nobody_else_can_end_a_subscription(plain: Raw, dial: Dial) -> None:
    name = new_name()
    id = subscribe(plain, name)
    error = refused(dial("ws", "json"), {"role": "pubsub-unsubscribe", "subscription_id": id})
    assert error["code"] == "PUBSUB_SUBSCRIPTION_NOT_FOUND"
    publish(plain, name, 1)
    assert payloads(plain, 1) == [1]


def test_a_subscription_ends_with_its_connection(plain: Raw, dial: Dial) -> None:
    name, gone = new_name(), dial("tcp", "json")
    id = subscribe(gone, name)
    gone.close()
    while (reply := plain.ask(subscription(id, name)))["role"] != "pubsub-ack":  # until the node has noticed
        assert reply["error"]["code"] == "PUBSUB_SUBSCRIPTION_EXISTS"
    publish(plain, name, 1)
    assert payloads(plain, 1) == [1]


# The backlog (R-P4).


def test_a_late_subscriber_gets_the_backlog_oldest_first_then_what_is_live(raw: Raw) -> None:
    name = new_name()
    for number in range(5):
        publish(raw, f"{name}.{number}", number)
    publish(raw, f"{new_name()}.other")
    id = new_name()
    raw.send(subscription(id, f"{name}.*", get_backlog=True, backlog_seconds=300))
    publish(raw, f"{name}.live", "live")
    assert raw.receive()["role"] == "pubsub-ack"
    got = [notification(raw) for _ in range(6)]
    assert [each["message"]["payload"] for each in got] == [0, 1, 2, 3, 4, "live"]
    assert [each.get("backlog", False) for each in got] == [True] * 5 + [False]
    assert_silent(raw)


def test_without_get_backlog_only_live_messages_come(plain: Raw) -> None:
    name = new_name()
    publish(plain, name, "old")
    subscribe(plain, name, backlog_seconds=300)
    publish(plain, name, "new")
    assert payloads(plain, 1) == ["new"]


def test_a_backlog_of_no_seconds_is_empty(plain: Raw) -> None:
    name = new_name()
    publish(plain, name, "old")
    assert_silent(plain)
    subscribe(plain, name, get_backlog=True, backlog_seconds=0)
    assert_silent(plain)


@pytest.mark.parametrize("seconds", [301, 86_400, 1e300])
def test_a_window_over_the_nodes_is_cut_to_it(plain: Raw, seconds: float) -> None:
    name = new_name()
    publish(plain, name, "old")
    subscribe(plain, name, get_backlog=True, backlog_seconds=seconds)
    assert payloads(plain, 1) == ["old"]


def test_a_message_that_comes_again_is_published_once(plain: Raw, dial: Dial) -> None:
    """R-P6: the publisher sends it again after a reconnect."""
    name = new_name()
    subscribe(plain, name)
    publish(plain, name, 1, message_id="m", publisher=name)
    assert payloads(plain, 1) == [1]
    again = publish_surely(dial("ws", "msgpack"), name, 1, message_id="m", publisher=name)
    assert again["success"] is True
    assert again["duplicates"] == 1
    assert_silent(plain)


def test_a_timestamp_of_the_future_or_the_past_is_only_passed_on(plain: Raw) -> None:
    name = new_name()
    for timestamp in (time.time() + 1e6, 0):
        publish(plain, name, timestamp=timestamp)
    subscribe(plain, name, get_backlog=True, backlog_seconds=60)
    assert [notification(plain)["message"]["timestamp"] > 1e9 for _ in range(2)] == [True, False]


# What is not right is refused, and changes nothing.


@pytest.mark.parametrize(
    ("topic", "limit"),
    [
        ("a.*", "no `*`, no `#`"),
        ("#", "no `*`, no `#`"),
        ("a..b", "a level has at least one character"),
        ("", "a level has at least one character"),
        ("a.", "a level has at least one character"),
        ("x" * 10_240, "1024 bytes"),
        (".".join("abc"[n % 3] for n in range(1_000)), "1024 bytes"),
        (".".join("a" * 65), "64 levels"),
        ("a\x00b", "printable characters"),
        ("a\nb", "printable characters"),
        ("a\u2028b", "printable characters"),
    ],
)
def test_a_topic_that_is_none_is_refused(plain: Raw, topic: str, limit: str) -> None:
    error = refused_publish(plain, topic=topic, payload=1)
    assert error["code"] == "PUBSUB_INVALID_TOPIC"
    assert error["details"]["limit"] == limit


@pytest.mark.parametrize("pattern", ["a..b", "", ".", "a*", "x" * 2_000, ".".join("#" * 65), "a\tb"])
def test_a_pattern_that_is_none_is_refused(plain: Raw, pattern: str) -> None:
    name = new_name()
    error = refused(plain, subscription(name, "fine.#", pattern))
    assert error["code"] == "PUBSUB_INVALID_PATTERN"
    assert error["details"]["field"] == "pattern"
    assert plain.ask(subscription(name, f"{name}.#"))["success"] is True, "the id was not taken"


def test_the_worst_pattern_is_matched_like_any_other(plain: Raw) -> None:
    name = new_name()
    subscribe(plain, f"{name}.#.#.#.#.#.x", ".".join([name, *["#", "a"] * 31]))
    for last in ("a", "b", "x"):
        publish(plain, ".".join([name, *"a" * 61, last]), last)
    assert payloads(plain, 2) == ["a", "x"]
    assert_silent(plain)


def test_a_subscription_has_at_most_1_000_patterns(plain: Raw) -> None:
    error = refused(plain, subscription(new_name(), *(f"a.{number}" for number in range(100_000))))
    assert error["code"] == "PUBSUB_LIMIT"
    assert error["details"] == {"field": "patterns", "limit": 1_000}
    subscribe(plain, *(f"{new_name()}.{number}" for number in range(1_000)))


def test_a_subscription_needs_a_pattern(plain: Raw) -> None:
    error = refused(plain, subscription(new_name()))
    assert error["code"] == "PUBSUB_INVALID_SUBSCRIPTION"


@pytest.mark.parametrize("seconds", [-1, -1e300])
def test_negative_backlog_seconds_are_refused(plain: Raw, seconds: float) -> None:
    error = refused(plain, subscription(new_name(), "a", get_backlog=True, backlog_seconds=seconds))
    assert error["code"] == "PUBSUB_INVALID_SUBSCRIPTION"
    assert error["details"]["field"] == "backlog_seconds"


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"topic": "a"}, "$.message.payload"),
        ({"payload": 1}, "$.message.topic"),
        ({"topic": 1, "payload": 1}, "$.message.topic"),
        ({"topic": "a", "payload": 1, "headers": []}, "$.message.headers"),
        ({"topic": "a", "payload": 1, "timestamp": "now"}, "$.message.timestamp"),
        ({"topic": "a", "payload": 1, "timestamp": -1}, "$.message.timestamp"),
        ({"topic": "a", "payload": 1, "message_id": ""}, "$.message.message_id"),
        ({"topic": "a", "payload": 1, "message_id": "x" * 257}, "$.message.message_id"),
        ([], "$.message"),
    ],
)
def test_a_message_field_that_is_wrong_is_named(raw: Raw, message: Any, path: str) -> None:
    error = refused(raw, {"role": "pubsub-publish", "u": "p", "message": message})
    assert error["code"] == "PROTOCOL_INVALID_MESSAGE"
    assert error["details"]["path"] == path


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "$.message"),
        ({"messages": []}, "$.messages"),
        ({"message": {"topic": "a", "payload": 1}, "messages": [{"topic": "a", "payload": 1}]}, "$.messages"),
        ({"messages": [{"topic": "a", "payload": 1}, {"topic": "a"}]}, "$.messages[1].payload"),
    ],
)
def test_a_publish_has_a_message_or_messages(plain: Raw, fields: dict[str, Any], path: str) -> None:
    error = refused(plain, {"role": "pubsub-publish", "u": "p", **fields})
    assert error["code"] == "PROTOCOL_INVALID_MESSAGE"
    assert error["details"]["path"].startswith(path[: path.find("[")] if "[" in path else path)


def test_a_batch_is_published_as_a_whole_or_not_at_all(plain: Raw) -> None:
    name = new_name()
    subscribe(plain, f"{name}.#")
    topics = (f"{name}.a", f"{name}..b", f"{name}.c")
    messages = [{"topic": topic, "payload": topic} for topic in topics]
    error = refused(plain, {"role": "pubsub-publish", "u": "p", "messages": messages})
    assert error["code"] == "PUBSUB_INVALID_TOPIC"


def test_a_batch_has_at_most_10_000_messages(plain: Raw) -> None:
    message = {"topic": new_name(), "payload": None}
    error = refused(plain, {"role": "pubsub-publish", "u": "p", "messages": [message] * 10_001})
    assert error["code"] == "PUBSUB_LIMIT"
    assert error["details"]["limit"] == 10_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subscription_id", None),
        ("subscription_id", ""),
        ("subscription_id", "x" * 257),
        ("patterns", "a.b"),
        ("patterns", [{}]),
        ("get_backlog", "yes"),
        ("backlog_seconds", "300"),
        ("on_slow", "wait"),
        ("after", {"node": "first"}),
    ],
)
def test_a_subscription_field_that_is_wrong_is_named(plain: Raw, field: str, value: Any) -> None:
    request = subscription(new_name(), "a")
    request["subscription"][field] = value
    error = refused(plain, request)
    assert error["code"] == "PROTOCOL_INVALID_MESSAGE"
    assert error["details"]["path"].startswith(f"$.subscription.{field}")


def test_an_unsubscribe_of_what_never_was_is_refused(plain: Raw) -> None:
    error = refused(plain, {"role": "pubsub-unsubscribe", "subscription_id": "never"})
    assert error["code"] == "PUBSUB_SUBSCRIPTION_NOT_FOUND"


@pytest.mark.parametrize("role", ["pubsub-notification", "pubsub-ack"])
def test_what_only_a_node_says_is_not_taken_from_a_client(plain: Raw, role: str) -> None:
    error = refused(plain, {"role": role, "subscription_id": "s", "operation_id": "o", "success": True})
    assert error["code"] == "PROTOCOL_UNEXPECTED_MESSAGE"


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
def test_text_that_is_not_utf8_reaches_nobody(dial: Dial, scheme: str) -> None:
    name, plain, other = new_name(), dial(scheme, "json"), dial("ws", "json")
    subscribe(other, name)
    data = b'{"role":"pubsub-publish","message":{"topic":"' + name.encode() + b'","payload":"\xff\xfe"}}'
    plain.send_binary(data)
    reply = plain.receive()
    assert reply["error"]["code"] == "PROTOCOL_INVALID_FRAME"
    assert_silent(plain)
    assert_silent(other)


def test_a_payload_of_nearly_20_mb_arrives_whole(plain: Raw) -> None:
    name = new_name()
    subscribe(plain, name)
    payload = "x" * (20_000_000 - 200)
    publish(plain, name, payload)
    assert notification(plain)["message"]["payload"] == payload


def test_a_payload_of_20_mb_is_refused(plain: Raw) -> None:
    """R-W3: no frame can be found behind it, so the connection closes."""
    subscribe(plain, new_name())
    publish(plain, new_name(), "x" * 20_000_000)
    assert plain.receive()["error"]["code"] == "RESOURCE_FRAME_TOO_LARGE"
    plain.assert_closed()


def test_who_does_not_read_loses_the_oldest_if_it_asks_for_that(plain: Raw, dial: Dial) -> None:
    """R-P5; nobody else waits for it, and it is as good a subscriber as before."""
    name, count = new_name(), 30_000
    slow, quick = dial("tcp", "msgpack"), dial("tcp", "msgpack")
    subscribe(slow, f"{name}.#", on_slow="drop_oldest", batch=True)
    subscribe(quick, f"{name}.end")
    for start in range(0, count, 1_000):
        messages = [{"topic": f"{name}.x", "payload": [n, "x" * 1_000]} for n in range(start, start + 1_000)]
        plain.send({"role": "pubsub-publish", "messages": messages})
    publish(plain, f"{name}.end", ["end"])
    assert payloads(quick, 1) == [["end"]]
    got: list[Any] = []
    while not got or got[-1] != "end":
        got += [message["payload"][0] for message in notification(slow)["messages"]]
    numbers = got[:-1]
    assert numbers == sorted(numbers)
    assert numbers[0] == 0
    assert numbers[-1] == count - 1
    assert len(numbers) < count, "the oldest of what waited are missing"
    publish(plain, f"{name}.x", ["after"])
    assert notification(slow)["messages"][0]["payload"] == ["after"]


def test_the_statistics_are_those_of_the_note(plain: Raw) -> None:
    name = new_name()
    subscribe(plain, f"{name}.*.x")
    before = plain.call("mpreg.stats")["r"]["topic_exchange"]
    publish(plain, f"{name}.a.x", 1)
    assert payloads(plain, 1) == [1]
    after = plain.call("mpreg.stats")["r"]["topic_exchange"]
    assert after["messages_published"] - before["messages_published"] == 1
    assert after["messages_delivered"] - before["messages_delivered"] == 1
    assert after["active_subscriptions"] == before["active_subscriptions"] >= 1
    assert 0 <= after["delivery_ratio"] <= 1
    assert after["trie_stats"].keys() == {"node_count", "leaf_count", "max_depth", "avg_depth"}
    assert {"total_messages", "oldest_message_age_seconds", "memory_usage_bytes"} <= after["backlog_stats"].keys()

"""Publishing: what the node fills in, and what it has seen before (R-P6)."""

from __future__ import annotations

import pytest
from tests.pubsub.links import Clock, Peer, new_service

from mpreg.errors import PubSubError
from mpreg.pubsub import PubSubLimits
from mpreg.pubsub.repeats import Repeats
from mpreg.wire.encoding import Encoding

pytestmark = pytest.mark.anyio


async def test_an_id_and_a_time_that_are_missing_are_made() -> None:
    clock = Clock()
    service = new_service(clock)
    peer = Peer(service)
    peer.subscribe("s", "a")
    peer.publish("a")
    peer.publish("a")
    peer.publish("a", message_id="mine", timestamp=7.5)
    service._delivery.flush()
    found = [(message.message_id, message.timestamp) for message in peer.got("s")]
    assert found == [("here-1", clock.now), ("here-2", clock.now), ("mine", 7.5)]
    service.close()


async def test_a_message_that_is_sent_again_is_published_once() -> None:
    service = new_service()
    first, second = Peer(service), Peer(service)
    first.subscribe("s", "a")
    for peer in (first, second, first):
        peer.publish("a", message_id="m1", publisher="p")
    second.publish("a", message_id="m1", publisher="q")
    second.publish("a", message_id="m2", publisher="p")
    second.publish("a", message_id="m1")
    service._delivery.flush()
    assert [(each.publisher, each.message_id) for each in first.got("s")] == [
        ("p", "m1"),
        ("q", "m1"),
        ("p", "m2"),
        (None, "m1"),
    ]
    assert service.report()["duplicates"] == 2
    service.close()


async def test_a_batch_with_a_bad_topic_publishes_nothing() -> None:
    service = new_service()
    peer = Peer(service)
    peer.subscribe("s", "#")
    with pytest.raises(PubSubError, match="PUBSUB_INVALID_TOPIC"):
        peer.publish("a", "b.*", "c")
    service._delivery.flush()
    assert peer.got("s") == []
    assert service.report()["messages_published"] == service.report()["backlog_stats"]["total_messages"] == 0
    service.close()


async def test_a_timestamp_of_the_future_moves_no_window() -> None:
    clock = Clock()
    service = new_service(clock, backlog_window_s=10)
    peer = Peer(service)
    peer.publish("a", timestamp=clock.now + 1e6)
    clock.now += 11
    peer.publish("a", timestamp=1.0)
    late = Peer(service)
    late.subscribe("s", "a", get_backlog=True, backlog_seconds=5)
    assert [message.timestamp for message in late.got("s")] == [1.0]
    service.close()


async def test_the_node_itself_publishes() -> None:
    service = new_service()
    peers = [Peer(service, encoding) for encoding in Encoding]
    for peer in peers:
        peer.subscribe(f"s{peer.encoding}", "cache.#")
    service.publish("cache.changed", {"key": "k"}, headers={"why": "test"})
    service._delivery.flush()
    for peer in peers:
        (message,) = peer.got(f"s{peer.encoding}")
        assert (message.payload, message.headers) == ({"key": "k"}, {"why": "test"})
    with pytest.raises(PubSubError, match="PUBSUB_UNENCODABLE_PAYLOAD"):
        service.publish("cache.changed", object())
    with pytest.raises(PubSubError, match="PUBSUB_INVALID_TOPIC"):
        service.publish("cache.*", 1)
    service.close()


def test_the_window_of_ids_is_bounded_for_each_publisher() -> None:
    repeats = Repeats(PubSubLimits(ids_per_publisher_max=100))
    repeats.add("quiet", "m")
    for number in range(1_000):
        repeats.add("busy", f"m{number}")
    assert repeats.is_known("quiet", "m")
    known = [number for number in range(1_000) if repeats.is_known("busy", f"m{number}")]
    assert 50 <= len(known) <= 100
    assert known[-1] == 999


def test_the_publishers_are_bounded_and_the_silent_ones_go_first() -> None:
    repeats = Repeats(PubSubLimits(publishers_max=3))
    for publisher in "abcad":
        repeats.add(publisher, "m")
    assert len(repeats) == 3
    assert [publisher for publisher in "abcd" if repeats.is_known(publisher, "m")] == ["a", "c", "d"]

"""Delivery: once, in order, encoded once; and a subscriber that does not read is nobody else's trouble (R-P2, R-P5)."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.pubsub.links import Clock, Peer, new_service

from mpreg.pubsub import frames, run
from mpreg.pubsub.run import RUN_BYTES
from mpreg.pubsub.turns import TURN_BYTES
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import Limits
from mpreg.wire.pubsub import PubSubMessage, PubSubNotification

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("encoding", list(Encoding))


@BOTH
@pytest.mark.parametrize("backlog", [False, True])
@pytest.mark.parametrize("count", [1, 15, 16, 300])
def test_a_spliced_frame_reads_back_as_a_notification(encoding: Encoding, backlog: bool, count: int) -> None:
    raw = codec.encode_value({"é": [1, None]}, encoding)
    messages = [PubSubMessage(topic="a.b", payload=raw, message_id=f"m{number}") for number in range(count)]
    id = 'sub "é" 1'
    prefix = frames.prefix(encoding, id, batch=True, backlog=backlog)
    read = codec.decode(prefix + frames.batch_tail(encoding, {"here": 7}, messages), encoding)
    assert isinstance(read, PubSubNotification)
    assert (read.subscription_id, read.backlog, read.positions) == (id, backlog, {"here": 7})
    assert read.messages
    assert codec.decode_value(read.messages, encoding)[-1]["message_id"] == f"m{count - 1}"

    prefix = frames.prefix(encoding, id, batch=False, backlog=backlog)
    body = codec.encode_value(messages[0], encoding)
    read = codec.decode(frames.single(encoding, prefix, 2**32 + 255, bytes(body)), encoding)
    assert isinstance(read, PubSubNotification)
    assert (read.subscription_id, read.backlog, read.u) == (id, backlog, "000000ff")
    assert read.message
    assert codec.decode_value(read.message, encoding)["payload"] == {"é": [1, None]}


async def test_a_message_is_encoded_once_whoever_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []

    def counting(encoding: Encoding) -> Any:
        encode = frames.ENCODE[encoding]

        def count(value: Any) -> bytes:
            encoded.append(encoding)
            return encode(value)

        return count

    transcoded: list[Any] = []
    transcode = codec.transcode

    def transcoding(*args: Any) -> Raw:
        transcoded.append(args)
        return transcode(*args)

    monkeypatch.setattr(codec, "transcode", transcoding)
    monkeypatch.setattr(frames, "ENCODE", {encoding: counting(encoding) for encoding in Encoding})
    service = new_service()
    peers = [Peer(service, encoding) for encoding in Encoding for _ in range(20)]
    for number, peer in enumerate(peers):
        peer.subscribe(f"s{number}", "a.#")
    peers[0].publish("a.b", payload={"x": 1})
    service._delivery.flush()
    assert [peer.payloads(f"s{number}") for number, peer in enumerate(peers)] == [[{"x": 1}]] * 40
    assert sorted(encoding.value for encoding in encoded) == ["json", "msgpack"]
    assert len(transcoded) == 1
    service.close()


async def test_what_comes_in_one_turn_leaves_in_one_frame() -> None:
    service = new_service()
    peer = Peer(service, Encoding.MSGPACK)
    peer.subscribe("s", "a.#", batch=True)
    for number in range(10):
        peer.publish("a.b", payload=number)
    await asyncio.sleep(0)
    assert len(peer.link.frames) == 1
    assert peer.payloads("s") == list(range(10))
    service.close()


async def test_a_long_turn_leaves_in_several_frames() -> None:
    service = new_service()
    peer = Peer(service, Encoding.MSGPACK)
    peer.subscribe("s", "a", batch=True)
    peer.publish_payloads("a", *(bytes(1_000) for _ in range(200)))
    service._delivery.flush()
    assert len(peer.link.frames) >= 4
    assert all(len(frame) < RUN_BYTES + 2_000 for frame, _ in peer.link.frames)
    assert len(peer.got("s")) == 200
    service.close()


async def test_a_subscription_in_several_groups_keeps_the_order_of_publishing() -> None:
    service = new_service()
    peer, other = Peer(service), Peer(service)
    peer.subscribe("all", "#")
    other.subscribe("a", "a.#")
    other.subscribe("b", "b.#")
    topics = ["a.1", "b.1", "c.1", "a.2", "c.2", "b.2", "a.3"]
    for topic in topics:
        peer.publish(topic)
    service._delivery.flush()
    assert peer.topics("all") == topics
    assert other.topics("a") == ["a.1", "a.2", "a.3"]
    assert other.topics("b") == ["b.1", "b.2"]
    service.close()


async def test_a_payload_without_an_encoding_is_left_out_for_those_only_who_need_it() -> None:
    service = new_service()
    publisher, json, other = Peer(service, Encoding.MSGPACK), Peer(service, Encoding.JSON), Peer(service)
    json.subscribe("j", "a", batch=True)
    publisher.subscribe("m", "a", batch=True)
    other.subscribe("o", "a")
    publisher.publish("a", payload={(1, 2): "a key that JSON can't have"})
    publisher.publish("a", payload=b"\x00\xff")
    service._delivery.flush()
    assert json.payloads("j") == other.payloads("o") == ["AP8="]
    assert len(publisher.got("m")) == 2
    service.close()


async def test_headers_without_an_encoding_are_left_out_for_those_only_who_need_it() -> None:
    """MessagePack has extensions and keys that JSON has not; JSON has numbers that are too large for MessagePack."""
    service = new_service()
    peers = {encoding: Peer(service, encoding) for encoding in Encoding}
    for encoding, peer in peers.items():
        peer.subscribe(encoding.value, "a", batch=True)
    peers[Encoding.MSGPACK].publish("a", payload=1, headers={"x": msgspec.msgpack.Ext(5, b"x")})
    peers[Encoding.MSGPACK].publish("a", payload=2, headers={"x": {(1, 2): 3}})
    peers[Encoding.JSON].publish("a", payload=3, headers={"x": 10**30})
    peers[Encoding.JSON].publish("a", payload=4, headers={"x": "y"})
    service._delivery.flush()
    assert peers[Encoding.JSON].payloads("json") == [3, 4]
    assert peers[Encoding.MSGPACK].payloads("msgpack") == [1, 2, 4]
    report = service.report()
    assert (report["messages_delivered"], report["messages_dropped"]) == (5, 3)
    service.close()


async def test_a_message_that_is_too_large_for_a_link_is_lost_alone() -> None:
    """A payload of bytes grows by a third in JSON."""
    service = new_service()
    peer = Peer(service, Encoding.MSGPACK, Limits(message_bytes_max=100_000))
    peer.subscribe("s", "a", batch=True)
    for payload in (1, b"x" * 110_000, 2):
        peer.publish("a", payload=payload)
    service._delivery.flush()
    late = Peer(service, Encoding.MSGPACK, Limits(message_bytes_max=100_000))
    late.subscribe("late", "a", batch=True, get_backlog=True)
    assert peer.payloads("s") == late.payloads("late") == [1, 2]
    assert service.report()["messages_dropped"] == 2
    service.close()


async def test_nobody_waits_for_a_subscriber_that_does_not_read() -> None:
    service = new_service(written_bytes_max=1_000)
    slow, quick = Peer(service), Peer(service)
    slow.link.reads = False
    for peer, id in ((slow, "slow"), (quick, "quick")):
        peer.subscribe(id, "a", batch=True)
    for number in range(100):
        quick.publish("a", payload="x" * 100 + str(number))
        service._delivery.flush()
        assert len(quick.got("quick")) == number + 1
    assert len(slow.link.frames) < 10, "the rest waits in the node, as a reference to what all share"
    slow.link.reads = True
    slow.link.read_all()
    service._delivery.pump()
    assert slow.payloads("slow") == quick.payloads("quick")
    assert service.report()["slow_subscribers"] == 0
    service.close()


async def test_a_subscriber_that_never_reads_is_disconnected_at_the_limit() -> None:
    service = new_service()
    limits = Limits(waiting_bytes_max=100_000)
    slow, quick = Peer(service, limits=limits), Peer(service, limits=limits)
    slow.link.reads = False
    for peer, id in ((slow, "slow"), (quick, "quick")):
        peer.subscribe(id, "a", batch=True)
    for _ in range(1_000):
        quick.publish("a", payload="x" * 1_000)
        service._delivery.flush()
    assert slow.link.closed
    assert slow.link.error is not None
    assert slow.link.error.code == "RESOURCE_SLOW_CONSUMER"
    assert slow.link.waiting <= 60_000
    assert len(quick.got("quick")) == 1_000
    report = service.report()
    assert report["slow_disconnects"] == 1
    assert report["messages_dropped"] > 0
    assert report["delivery_ratio"] < 1
    assert report["slow_subscribers"] == 0
    service.close()


async def test_all_subscriptions_of_a_connection_share_its_limit() -> None:
    service = new_service()
    slow = Peer(service, limits=Limits(waiting_bytes_max=100_000))
    slow.link.reads = False
    for number in range(10):
        slow.subscribe(f"s{number}", "a")
    for _ in range(20):
        slow.publish("a", payload="x" * 1_000)
        service._delivery.flush()
    assert slow.link.closed
    service.close()


@pytest.mark.parametrize("batch", [1, 7, 50])
async def test_under_drop_oldest_the_newest_stay(batch: int) -> None:
    service = new_service(written_bytes_max=1, waiting_messages_max=10)
    slow = Peer(service, Encoding.MSGPACK)
    slow.link.reads = False
    slow.subscribe("s", "a", batch=True, on_slow="drop_oldest")
    slow.publish("a", payload="first")
    service._delivery.flush()
    for start in range(0, 100, batch):
        slow.publish_payloads("a", *range(start, min(start + batch, 100)))
        service._delivery.flush()
        assert sum(map(len, service._delivery.slow)) <= 10
    slow.link.reads = True
    slow.link.read_all()
    service._delivery.pump()
    assert slow.payloads("s") == ["first", *range(90, 100)]
    assert not slow.link.closed
    assert service.report()["messages_dropped"] == 90
    service.close()


async def test_under_drop_oldest_the_bytes_are_limited_too() -> None:
    service = new_service(written_bytes_max=1, waiting_bytes_max=10_000)
    slow = Peer(service, Encoding.MSGPACK)
    slow.link.reads = False
    slow.subscribe("s", "a", batch=True, on_slow="drop_oldest")
    for number in range(100):
        slow.publish("a", payload=[number, "x" * 1_000])
        service._delivery.flush()
    (outbox,) = service._delivery.slow
    assert 5 < len(outbox) < 10
    slow.publish("a", payload="x" * 1_000_000)
    service._delivery.flush()
    assert len(outbox) == 1, "the newest stays, whatever its size"
    service.close()


async def test_a_backlog_waits_until_it_is_read() -> None:
    """A late subscriber costs no more than any other: what it has not read is not written."""
    service = new_service(written_bytes_max=50_000)
    publisher, late = Peer(service), Peer(service)
    for number in range(1_000):
        publisher.publish("a", payload=["x" * 1_000, number])
    late.link.reads = False
    late.subscribe("s", "a", get_backlog=True, batch=True)
    assert late.link.waiting < 150_000
    publisher.publish("a", payload=["live", 1_000])
    service._delivery.flush()
    while service._delivery.slow:
        late.link.read_all()
        service._delivery.pump()
    assert [number for _, number in late.payloads("s")] == list(range(1_001))
    service.close()


async def test_a_subscriber_that_left_gets_nothing_and_holds_nothing() -> None:
    service = new_service(written_bytes_max=1)
    peer, other = Peer(service), Peer(service)
    peer.link.reads = False
    peer.subscribe("s", "a.#")
    for _ in range(100):
        other.publish("a.b")
        service._delivery.flush()
    other.publish("a.b")
    peer.leave()
    service._delivery.flush()
    count = len(peer.link.frames)
    other.publish("a.b")
    service._delivery.flush()
    assert len(peer.link.frames) == count
    report = service.report()
    assert (report["active_subscriptions"], report["slow_subscribers"], report["hot_topics"]) == (0, 0, 1)
    assert service._loads == {}
    gc.collect()
    runs = [each for each in gc.get_objects() if isinstance(each, run.Run)]
    assert runs == []
    service.close()


async def test_what_came_before_an_unsubscribe_is_delivered() -> None:
    service = new_service()
    peer = Peer(service)
    peer.subscribe("s", "a")
    peer.publish("a", payload=1)
    peer.unsubscribe("s")
    peer.publish("a", payload=2)
    service._delivery.flush()
    assert peer.payloads("s") == [1]
    service.close()


async def test_one_publisher_gets_only_its_share_of_a_turn() -> None:
    service = new_service()
    busy, quiet = Peer(service), Peer(service)
    quiet.publish("a", payload=1)
    busy.publish("a", payload="x" * TURN_BYTES)
    busy.publish("a", payload="x" * TURN_BYTES)
    assert (busy.link.reading_paused, quiet.link.reading_paused) == (1, 0)
    await asyncio.sleep(0)
    assert busy.link.reading_paused == 0
    service.close()


async def test_counts_are_those_of_the_note() -> None:
    clock = Clock()
    service = new_service(clock)
    peer = Peer(service)
    peer.subscribe("s1", "a.*.c", "x.#")
    peer.subscribe("s2", "#")
    peer.publish("a.b.c", "x", "y")
    service._delivery.flush()
    clock.now += 45.2
    report = service.report()
    assert report.pop("backlog_stats")["oldest_message_age_seconds"] == 45.2
    assert report == {
        "active_subscriptions": 2,
        "messages_published": 3,
        "messages_delivered": 5,
        "messages_dropped": 0,
        "duplicates": 0,
        "slow_disconnects": 0,
        "delivery_ratio": 1.0,
        "slow_subscribers": 0,
        "hot_topics": 3,
        "trie_stats": {"node_count": 1, "leaf_count": 3, "max_depth": 3, "avg_depth": 2.0},
        "handlers": [],
    }
    assert msgspec.json.encode(report)
    service.close()


async def test_an_outbox_in_which_nothing_waits_is_small() -> None:
    """A node may have a million of them."""
    service = new_service(written_bytes_max=1)
    peer = Peer(service, Encoding.MSGPACK)
    for id in ("one", "two"):
        peer.subscribe(id, "a.b", batch=True)
    one, two = (subscription.receiver for subscription in service._exchange.owned_by(peer.session))

    def own_bytes() -> int:
        assert not hasattr(one, "__dict__")
        parts = {name: getattr(one, name) for name in type(one).__slots__}
        owned = [part for name, part in parts.items() if part is not getattr(two, name)]
        return sys.getsizeof(one) + sum(map(sys.getsizeof, owned))

    assert own_bytes() < 500
    peer.link.reads = False
    peer.publish("a.b")
    service._delivery.flush()
    peer.publish("a.b")
    service._delivery.flush()
    assert own_bytes() > 1_000, "a queue of its own"
    peer.link.read_all()
    while service._delivery.slow:
        peer.link.read_all()
        service._delivery.pump()
    assert own_bytes() < 500
    service.close()

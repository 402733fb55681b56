"""R-P4: the window by time, count and bytes; found by pattern; and the seam, without gap or duplicate."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from msgspec import Raw
from tests.pubsub import oracle
from tests.pubsub.links import Clock, Peer, new_service

from mpreg.errors import PubSubError
from mpreg.pubsub import PubSubLimits, parse_pattern
from mpreg.pubsub.backlog import OVERHEAD_BYTES, SCANNED_MAX, Backlog
from mpreg.pubsub.message import Published
from mpreg.pubsub.patterns import Levels
from mpreg.wire.encoding import Encoding
from mpreg.wire.pubsub import PubSubMessage

pytestmark = pytest.mark.anyio

PATTERNS = ("a.#", "a.*", "#", "*.b", "a.b", "#.c", "b.#.c", "x")


def published(seq: int, topic: str = "a.b", at: float = 0.0, size: int = 100) -> Published:
    return Published(seq, at, Encoding.JSON, PubSubMessage(topic=topic, payload=Raw(b"1")), size)


def levels_of(pattern: str) -> Levels:
    levels = parse_pattern(pattern)
    assert levels is not None
    return levels


def places(backlog: Backlog, pattern: str, since: float = 0.0, after: int = 0) -> list[int]:
    return [each.seq for each in backlog.matching([levels_of(pattern)], since, after)]


def test_the_oldest_go_when_there_are_too_many() -> None:
    backlog = Backlog(PubSubLimits(backlog_messages_max=3))
    backlog.add(published(seq) for seq in range(1, 6))
    backlog.trim(0)
    assert places(backlog, "#") == [3, 4, 5]
    assert backlog.stats(0)["dropped_by_count"] == 2
    assert backlog.dropped_up_to == 2


def test_the_oldest_go_when_they_take_too_many_bytes() -> None:
    backlog = Backlog(PubSubLimits(backlog_bytes_max=3 * (100 + OVERHEAD_BYTES)))
    backlog.add(published(seq) for seq in range(1, 6))
    backlog.trim(0)
    assert places(backlog, "#") == [3, 4, 5]
    assert backlog.stats(0)["dropped_by_bytes"] == 2
    assert backlog.stats(0)["memory_usage_bytes"] == 3 * (100 + OVERHEAD_BYTES)


def test_the_oldest_go_when_their_time_is_over() -> None:
    backlog = Backlog(PubSubLimits(backlog_window_s=300))
    backlog.add([published(1, at=0), published(2, at=100), published(3, at=200)])
    backlog.trim(399)
    assert places(backlog, "#") == [2, 3]
    assert backlog.stats(399) | {"memory_usage_bytes": 0} == {
        "total_messages": 2,
        "oldest_message_age_seconds": 299,
        "memory_usage_bytes": 0,
        "topics": 1,
        "expired": 1,
        "dropped_by_count": 0,
        "dropped_by_bytes": 0,
    }


@pytest.mark.parametrize("scanned", [0, 50, SCANNED_MAX])
def test_all_that_is_found_matches_and_is_in_order(scanned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the index, or by a look at the newest messages where these are few."""
    monkeypatch.setattr("mpreg.pubsub.backlog.SCANNED_MAX", scanned)
    random_ = random.Random(1)
    backlog = Backlog(PubSubLimits(backlog_messages_max=500))
    topics: dict[int, str] = {}
    for seq in range(1, 2_001):
        topics[seq] = ".".join(random_.choice("abc") for _ in range(random_.randint(1, 4)))
        backlog.add([published(seq, topics[seq], at=seq)])
        backlog.trim(0)
        if seq % 100 == 0:
            for pattern in PATTERNS:
                since, after = random_.randint(0, seq), random_.randint(0, seq)
                kept = range(max(1, seq - 499, since, after + 1), seq + 1)
                expected = [place for place in kept if oracle.matches(pattern, topics[place])]
                assert places(backlog, pattern, since, after) == expected


def test_a_subscribe_looks_only_at_topics_that_match() -> None:
    class Counting(dict[str, Any]):
        looked_up = 0

        def get(self, key: str, default: Any = None) -> Any:
            Counting.looked_up += 1
            return super().get(key, default)

        def __iter__(self) -> Any:
            raise AssertionError("every topic was looked at")

    backlog = Backlog(PubSubLimits())
    backlog._trie.root = Counting()
    backlog.add(published(seq, f"other{seq}.x") for seq in range(10_000))
    backlog.add([published(10_001, "orders.new")])
    before = Counting.looked_up
    assert places(backlog, "orders.*") == [10_001]
    assert Counting.looked_up - before == 1


def test_who_comes_back_after_a_moment_looks_only_at_what_came_meanwhile() -> None:
    backlog = Backlog(PubSubLimits())
    backlog.add(published(seq, f"{seq}.x") for seq in range(1, 10_001))
    before = backlog._trie.visits
    assert places(backlog, "*.x", after=9_990) == list(range(9_991, 10_001))
    assert places(backlog, "#", after=9_990) == list(range(9_991, 10_001))
    assert backlog._trie.visits == before


@pytest.mark.parametrize("messages", [1_000, 3_000])
def test_patterns_that_reach_too_many_topics_are_refused(messages: int) -> None:
    """A node that looks for long delivers nothing meanwhile."""
    backlog = Backlog(PubSubLimits(backlog_visits_max=2_000))
    backlog.add(published(seq, f"{seq}.x") for seq in range(1, messages + 1))
    patterns = [levels_of(f"#.{number}.#.x.#") for number in range(50)]
    with pytest.raises(PubSubError) as refused:
        backlog.matching(patterns, 0)
    assert refused.value.code == "PUBSUB_LIMIT"
    assert refused.value.details == {"field": "get_backlog", "limit": 2_000}
    assert len(backlog.matching([levels_of("#")], 0)) == messages


def test_an_empty_backlog_is_a_new_one() -> None:
    backlog = Backlog(PubSubLimits(backlog_window_s=10))
    backlog.add(published(seq, f"a.{seq % 7}.{seq % 3}") for seq in range(1, 1_000))
    backlog.trim(100)
    assert (len(backlog), backlog._bytes, backlog._by_topic, backlog._trie.root) == (0, 0, {}, {})


async def test_the_seam_has_no_gap_and_no_duplicate() -> None:
    """Subscribers that come at random moments of a stream, over links that stop and go on, with 1,000 seeds: each gets
    every matching message of its window once, in order, the backlog first."""
    for seed in range(1_000):
        await one_stream(random.Random(seed))


async def one_stream(random_: random.Random) -> None:
    clock = Clock()
    window_s, count_max = random_.choice((5.0, 50.0)), random_.choice((10, 1_000))
    service = new_service(
        clock, backlog_window_s=window_s, backlog_messages_max=count_max, written_bytes_max=random_.choice((1, 300))
    )
    publishers = [Peer(service, encoding) for encoding in Encoding]
    stream: list[tuple[int, str, float]] = []
    expected: dict[str, tuple[Peer, list[int], list[int]]] = {}
    subscribers: list[tuple[Peer, str, tuple[str, ...]]] = []
    for _ in range(random_.randint(5, 40)):
        action = random_.random()
        if action < 0.5:
            topics = [".".join(random_.choices("abc", k=random_.randint(1, 3))) for _ in range(random_.randint(1, 5))]
            for topic in topics:
                stream.append((len(stream), topic, clock.now))
                for _peer, id, patterns in subscribers:
                    if any(oracle.matches(pattern, topic) for pattern in patterns):
                        expected[id][2].append(stream[-1][0])
            publisher = random_.choice(publishers)
            for number, topic, _at in stream[len(stream) - len(topics) :]:
                publisher.publish(topic, payload=number)
        elif action < 0.7:
            peer = Peer(service, random_.choice(list(Encoding)))
            id = f"s{len(subscribers)}"
            patterns = tuple(random_.sample(PATTERNS, random_.randint(1, 3)))
            seconds = random_.choice((0.0, 3.0, 1e308))
            since = clock.now - min(seconds, window_s)
            late = [
                number
                for number, topic, at in stream[-count_max:]
                if at >= since and any(oracle.matches(pattern, topic) for pattern in patterns)
            ]
            wants = random_.random() < 0.7
            expected[id] = (peer, late if wants else [], [])
            subscribers.append((peer, id, patterns))
            peer.link.reads = random_.random() < 0.5
            peer.subscribe(id, *patterns, get_backlog=wants, backlog_seconds=seconds, batch=random_.random() < 0.5)
        elif action < 0.8:
            clock.now += random_.choice((0.5, 2.0, 20.0))
        elif action < 0.9:
            for peer, _id, _patterns in subscribers:
                peer.link.read_all()
            service._delivery.pump()
        else:
            await asyncio.sleep(0)
    service._delivery.flush()
    while service._delivery.slow:
        for peer, _id, _patterns in subscribers:
            peer.link.read_all()
        service._delivery.pump()
    for id, (peer, late, live) in expected.items():
        assert peer.payloads(id) == late + live
        assert [bool(each.backlog) for each in peer.notifications] == sorted(
            (bool(each.backlog) for each in peer.notifications), reverse=True
        )
    service.close()


async def test_the_backlog_of_an_idle_node_runs_out() -> None:
    clock = Clock()
    service = new_service(clock, backlog_window_s=10)
    Peer(service).publish("a.b")
    clock.now += 11
    late = Peer(service)
    late.subscribe("s", "#", get_backlog=True)
    assert late.notifications == []
    assert service.report()["backlog_stats"]["total_messages"] == 0
    service.close()


async def test_without_a_window_nothing_is_kept() -> None:
    service = new_service(backlog_window_s=0)
    Peer(service).publish("a.b")
    late = Peer(service)
    late.subscribe("s", "#", get_backlog=True)
    assert late.notifications == []
    service.close()


async def test_a_subscriber_that_comes_back_gets_what_it_missed() -> None:
    service = new_service()
    publisher, first = Peer(service), Peer(service)
    first.subscribe("s", "a.#", batch=True, ack=True)
    publisher.publish("a.1", "b.1", "a.2")
    service._delivery.flush()
    first.leave()
    publisher.publish("a.3", "b.2", "a.4")
    (positions,) = [each.positions for each in first.notifications]
    second = Peer(service)
    second.subscribe("s", "a.#", batch=True, get_backlog=True, after=positions, ack=True)
    publisher.publish("a.5")
    service._delivery.flush()
    assert first.topics("s") == ["a.1", "a.2"]
    assert second.topics("s") == ["a.3", "a.4", "a.5"]
    service.close()


async def test_a_connection_that_reads_no_backlog_can_not_ask_for_ever_more() -> None:
    service = new_service(written_bytes_max=1, replayed_messages_max=250)
    publisher, late, other = Peer(service), Peer(service), Peer(service)
    publisher.publish_payloads("a", *("x" * 1_000 for _ in range(200)))
    late.link.reads = False
    late.subscribe("s1", "a", get_backlog=True)
    with pytest.raises(PubSubError) as refused:
        late.subscribe("s2", "a", get_backlog=True)
    assert refused.value.code == "PUBSUB_LIMIT"
    assert refused.value.retryable
    late.subscribe("s2", "a")
    other.subscribe("s3", "a", get_backlog=True)
    late.link.reads = True
    late.link.read_all()
    service._delivery.pump()
    late.subscribe("s4", "a", get_backlog=True)
    assert [len(late.got(id)) for id in ("s1", "s2", "s4")] == [200, 0, 200]
    late.link.reads = False
    late.link.waiting = 10
    late.subscribe("s5", "a", get_backlog=True)
    late.unsubscribe("s5")
    assert service._loads[late.session].replayed == 0
    service.close()


async def test_a_backlog_that_does_not_reach_back_says_so() -> None:
    service = new_service(backlog_messages_max=2)
    publisher = Peer(service)
    publisher.publish("a", "a", "a", "a")
    for after, gap in (({"here": 1}, True), ({"here": 2}, False), ({"elsewhere": 9}, True)):
        peer = Peer(service)
        peer.subscribe(f"s{after}", "a", get_backlog=True, after=after, ack=True)
        (ack,) = [each for each in peer.received if hasattr(each, "gap")]
        assert (ack.gap is True) is gap
    service.close()

"""Subscriptions against a naive list; whose they are; the interest that others are told of; nothing left behind."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.pubsub import oracle

from mpreg.errors import PubSubError
from mpreg.pubsub import PubSubLimits, parse_pattern
from mpreg.pubsub.exchange import Exchange, Subscription
from mpreg.pubsub.patterns import Levels, join_levels

OWNERS = st.sampled_from(("one", "two"))
IDS = st.sampled_from([f"s{number}" for number in range(6)])


def levels_of(pattern: str) -> Levels:
    levels = parse_pattern(pattern)
    assert levels is not None
    return levels


def subscription(id: str, owner: str, *patterns: str) -> Subscription[str]:
    return Subscription(id, owner, tuple(dict.fromkeys(map(levels_of, patterns))), id)


class ExchangeAgainstAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.exchange = Exchange[str](PubSubLimits(hot_topics_max=8))
        self.known: dict[str, Subscription[str]] = {}
        self.told: set[Levels] = set()
        self.exchange.interest.watch(self.hear)

    def hear(self, pattern: Levels, wanted: bool) -> None:
        assert (pattern in self.told) is not wanted, "each change is told once"
        self.told ^= {pattern}

    @rule(id=IDS, owner=OWNERS, patterns=st.lists(oracle.patterns, min_size=1, max_size=4))
    def subscribe(self, id: str, owner: str, patterns: list[str]) -> None:
        new = subscription(id, owner, *patterns)
        if id in self.known:
            with pytest.raises(PubSubError, match="PUBSUB_SUBSCRIPTION_EXISTS"):
                self.exchange.subscribe(new)
        else:
            self.exchange.subscribe(new)
            self.known[id] = new

    @rule(id=IDS, owner=OWNERS)
    def unsubscribe(self, id: str, owner: str) -> None:
        if id in self.known and self.known[id].owner == owner:
            assert self.exchange.unsubscribe(owner, id) is self.known.pop(id)
        else:
            with pytest.raises(PubSubError, match="PUBSUB_SUBSCRIPTION_NOT_FOUND"):
                self.exchange.unsubscribe(owner, id)

    @rule(owner=OWNERS)
    def leave(self, owner: str) -> None:
        gone = {each.id for each in self.exchange.forget(owner)}
        assert gone == {id for id, each in self.known.items() if each.owner == owner}
        self.known = {id: each for id, each in self.known.items() if id not in gone}

    @rule(topics=st.lists(oracle.topics, min_size=1, max_size=4))
    def match(self, topics: list[str]) -> None:
        for topic in topics:
            expected = sorted(
                id
                for id, each in self.known.items()
                if any(oracle.matches(join_levels(pattern), topic) for pattern in each.patterns)
            )
            assert sorted(each.id for each in self.exchange.match(topic)) == expected

    @invariant()
    def others_know_what_is_wanted(self) -> None:
        wanted = {pattern for each in self.known.values() for pattern in each.patterns}
        assert self.told == set(self.exchange.interest) == wanted
        assert len(self.exchange.interest) == len(wanted)
        assert len(self.exchange) == len(self.known)

    @invariant()
    def nothing_is_left_of_what_has_ended(self) -> None:
        if not self.known:
            exchange = self.exchange
            assert (exchange._by_id, exchange._by_owner, exchange._pairs) == ({}, {}, 0)
            assert set(exchange._shared) <= {()}
            assert (exchange._trie.nodes, exchange._trie.patterns) == (1, 0)


TestExchangeAgainstAList = ExchangeAgainstAList.TestCase
TestExchangeAgainstAList.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_subscription_is_found_once_however_many_of_its_patterns_match() -> None:
    exchange = Exchange[str](PubSubLimits())
    exchange.subscribe(subscription("s", "one", "a.b", "a.*", "a.#", "#", "*.b"))
    assert [each.id for each in exchange.match("a.b")] == ["s"]


def test_topics_with_the_same_subscribers_share_one_answer() -> None:
    exchange = Exchange[str](PubSubLimits())
    for number in range(50):
        exchange.subscribe(subscription(f"s{number}", "one", "a.#"))
    assert exchange.match("a.1") is exchange.match("a.2")


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (PubSubLimits(subscriptions_per_connection_max=2), 2),
        (PubSubLimits(patterns_max=3), 3),
    ],
)
def test_what_is_over_a_limit_is_refused_and_changes_nothing(limits: PubSubLimits, limit: int) -> None:
    exchange = Exchange[str](limits)
    exchange.subscribe(subscription("s1", "one", "a"))
    exchange.subscribe(subscription("s2", "one", "b"))
    version = exchange.interest.version
    with pytest.raises(PubSubError) as raised:
        exchange.subscribe(subscription("s3", "one", "c", "d"))
    assert raised.value.code == "PUBSUB_LIMIT"
    assert raised.value.details["limit"] == limit
    assert (len(exchange), exchange.interest.version) == (2, version)
    exchange.unsubscribe("one", "s1")
    exchange.subscribe(subscription("s3", "one", "c"))

"""R-G3: the higher version wins, ties by node id; order and repetition do not matter; everything is bounded."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster.machines import EPOCH

from mpreg.cluster import shared_state
from mpreg.cluster.digests import Digest
from mpreg.cluster.owned import own_key, owner_of
from mpreg.cluster.shared_state import Entry, SharedState, encode_value, from_update, to_update

KEYS = ["x", "config.y", own_key("a", "f"), own_key("a", "g")]


def entry(key: str, value: object, version: int, source: str = "a", *, removed: bool = False) -> Entry:
    return Entry(key, encode_value(None if removed else value), version, source, removed, EPOCH, None)


entries = st.builds(
    lambda key, value, version, source, removed: entry(key, value, version, source, removed=removed),
    st.sampled_from(KEYS),
    st.integers(0, 2),
    st.integers(1, 3),
    st.sampled_from("ab"),
    st.booleans(),
)


def merged(said: list[Entry]) -> tuple[SharedState, Digest]:
    digest = Digest()
    state = SharedState(digest)
    state.count_owner("a")
    for each in said:
        if state.counts_for_more(each):
            state.set(each)
    return state, digest


def contents(state: SharedState) -> dict[str, tuple[object, ...]]:
    return {each.key: each.rank for each in state}


def test_the_higher_version_wins() -> None:
    state, _ = merged([entry("x", "new", 2), entry("x", "old", 1, "z")])
    found = state.get("x")
    assert found is not None
    assert bytes(found.value) == bytes(encode_value("new"))


def test_a_tie_is_decided_by_the_id_of_the_node() -> None:
    for order in ([0, 1], [1, 0]):
        both = [entry("x", 1, 5, "a"), entry("x", 2, 5, "b")]
        state, _ = merged([both[each] for each in order])
        found = state.get("x")
        assert found is not None
        assert found.source == "b"


def test_an_old_value_does_not_come_back_after_a_withdrawal() -> None:
    state, _ = merged([entry("x", 1, 1), entry("x", None, 2, removed=True), entry("x", 1, 1)])
    found = state.get("x")
    assert found is not None
    assert found.removed
    assert not state.is_shown(found)


@settings(max_examples=300)
@given(st.lists(entries, max_size=12), st.randoms(use_true_random=False))
def test_whatever_the_order_and_however_often_all_end_up_with_the_same(said: list[Entry], order: random.Random) -> None:
    again = said + said[: len(said) // 2]
    order.shuffle(again)
    (one, digest), (other, other_digest) = merged(said), merged(again)
    assert contents(one) == contents(other)
    assert (digest.total, digest.parts) == (other_digest.total, other_digest.parts)


@settings(max_examples=300)
@given(st.lists(entries, max_size=12), st.lists(entries, max_size=12))
def test_two_states_have_one_digest_exactly_if_they_show_the_same(a: list[Entry], b: list[Entry]) -> None:
    def live(state: SharedState) -> set[tuple[object, ...]]:
        return {(each.key, each.rank) for each in state if not each.removed}

    (one, digest), (other, other_digest) = merged(a), merged(b)
    assert (digest.total == other_digest.total) is (live(one) == live(other))


@given(st.lists(st.one_of(entries, st.sampled_from(["live", "die", "forget x"])), max_size=20))
def test_the_digest_is_always_that_of_what_is_there(happened: list[Entry | str]) -> None:
    digest = Digest()
    state = SharedState(digest)
    for each in happened:
        if each == "live":
            state.count_owner("a")
        elif each == "die":
            state.discount_owner("a")
        elif each == "forget x":
            state.forget("x")
        elif isinstance(each, Entry) and state.counts_for_more(each):
            state.set(each)
    parts = set(range(256))
    expected = sum(found.hash for _, found in state.in_parts(parts)) % 2**64
    assert digest.total == expected
    assert sum(digest.parts) % 2**64 == expected
    assert state.bytes == sum(found.size for found in state)


def test_keys_of_a_node_are_shown_only_while_it_lives() -> None:
    state, digest = merged([entry(own_key("a", "f"), 1, 1)])
    assert [each.key for each in state.shown_of("a")] == [own_key("a", "f")]
    state.discount_owner("a")
    assert state.shown_of("a") == []
    assert digest.total == 0
    state.count_owner("a")
    assert len(state.shown_of("a")) == 1


def test_keys_of_a_node_that_started_again_are_shown_once_it_says_so_itself() -> None:
    state, _ = merged([entry(own_key("a", "f"), 1, 1)])
    state.doubt_owner("a")
    assert state.shown_of("a") == []
    state.set(entry(own_key("a", "f"), 1, 2))
    assert len(state.shown_of("a")) == 1


def test_forgetting_a_node_forgets_its_keys() -> None:
    state, digest = merged([entry(key, 1, 1) for key in KEYS])
    state.forget_owner("a")
    assert {each.key for each in state} == {"x", "config.y"}
    state.forget("x")
    state.forget("config.y")
    assert digest.total == 0
    assert state.bytes == 0


def test_a_key_tells_its_owner() -> None:
    assert owner_of(own_key("n.1", "functions/0")) == "n.1"
    assert owner_of("config.x") is None
    assert owner_of("node/alone") is None
    assert owner_of("nodes/a/b") is None


def test_there_is_room_only_up_to_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_state, "KEYS_OF_NODE_MAX", 2)
    monkeypatch.setattr(shared_state, "KEYS_MAX", 3)
    state, _ = merged([entry(own_key("a", "f"), 1, 1), entry(own_key("a", "g"), 1, 1)])
    assert not state.has_room(entry(own_key("a", "h"), 1, 1))
    assert state.has_room(entry(own_key("a", "g"), 2, 2))
    assert state.has_room(entry("x", 1, 1))
    state.set(entry("x", 1, 1))
    assert not state.has_room(entry("y", 1, 1))
    monkeypatch.setattr(shared_state, "STATE_BYTES_MAX", state.bytes + 10)
    assert not state.has_room(entry("x", "a value that is longer", 2))


@given(entries)
def test_an_entry_comes_back_from_its_update_as_it_was(one: Entry) -> None:
    if one.removed:
        one = entry(one.key, None, one.version, one.source, removed=True)
    assert from_update(to_update(one)) == one

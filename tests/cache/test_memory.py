"""What a node holds in memory: within its bounds, and never beyond the time of an entry."""

from __future__ import annotations

import msgspec
import pytest
from tests.cache.entries import entry, key

from mpreg.cache.memory import POLICIES, MemorySettings, NamespaceMemory, PolicyName, make_memory
from mpreg.cache.tier import Evicted, Memory


def memory(**settings: object) -> tuple[Memory, list[tuple[bytes, Evicted]]]:
    told: list[tuple[bytes, Evicted]] = []
    return make_memory(msgspec.convert(settings, MemorySettings), lambda *what: told.append(what)), told


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> PolicyName:
    name: PolicyName = request.param
    return name


def test_what_was_put_is_found_again(policy: PolicyName) -> None:
    level, _ = memory(policy=policy)
    first, second = entry(3), entry(4, version=2)
    level.put(key("a"), first)
    assert level.get(key("a"), 1) is first
    level.put(key("a"), second)
    assert level.peek(key("a")) is second
    assert (len(level), level.size_bytes, list(level.keys())) == (1, 4, [key("a")])
    assert level.remove(key("a"))
    assert not level.remove(key("a"))
    assert level.get(key("a"), 1) is None
    assert (len(level), level.size_bytes) == (0, 0)


def test_an_entry_is_not_served_once_its_time_is_over(policy: PolicyName) -> None:
    level, told = memory(policy=policy)
    level.put(key("a"), entry(expires_ms=100))
    assert level.get(key("a"), 99) is not None
    assert level.get(key("a"), 100) is None
    assert told == [(key("a"), "expired")]
    assert len(level) == 0


def test_what_goes_for_want_of_room_is_told(policy: PolicyName) -> None:
    level, told = memory(policy=policy, entries_max=8)
    for n in range(50):
        level.put(key(n), entry())
    assert len(level) <= 8
    assert {why for _, why in told} == {"capacity"}
    assert {gone for gone, _ in told} | set(level.keys()) == {key(n) for n in range(50)}


def test_an_entry_that_alone_is_too_large_is_not_kept_nor_what_it_replaces(policy: PolicyName) -> None:
    level, told = memory(policy=policy, bytes_max=100)
    level.put(key("a"), entry())
    level.put(key("a"), entry(101))
    assert level.get(key("a"), 0) is None
    assert told == [(key("a"), "too_large")]
    level.put(key("b"), entry())
    assert not level.renew(key("b"), entry(101))
    assert level.get(key("b"), 0) is None
    assert told[1:] == [(key("b"), "too_large")]


def test_a_renewed_entry_is_replaced_in_place(policy: PolicyName) -> None:
    level, _ = memory(policy=policy)
    level.put(key("a"), entry())
    newer = entry(2, version=2)
    assert level.renew(key("a"), newer)
    assert level.get(key("a"), 0) is newer
    assert not level.renew(key("b"), newer)


def test_a_level_without_room_keeps_nothing(policy: PolicyName) -> None:
    level, _ = memory(policy=policy, entries_max=0)
    level.put(key("a"), entry())
    assert level.get(key("a"), 0) is None


def test_a_namespace_may_have_a_policy_and_room_of_its_own() -> None:
    level, told = memory(entries_max=8, namespaces={"own": {"policy": "cost", "entries_max": 2}})
    for n in range(4):
        level.put(key(n, "own"), entry(cost_ms=n + 1))
    for n in range(2):
        level.put(key(n), entry(10))
    assert told == [(key(0, "own"), "capacity"), (key(1, "own"), "capacity")]
    assert sorted(level.keys()) == sorted([key(2, "own"), key(3, "own"), key(0), key(1)])
    assert (len(level), level.size_bytes) == (4, 22)
    assert level.renew(key(2, "own"), entry(2, cost_ms=3))
    assert level.peek(key(2, "own")) == entry(2, cost_ms=3)
    assert level.get(key(3, "own"), 0) is not None
    assert level.remove(key(0))
    level.clear()
    assert (len(level), level.size_bytes, list(level.keys())) == (0, 0, [])


@pytest.mark.parametrize(
    "wrong", [{"policy": "lru"}, {"entries_max": -1}, {"bytes_max": -1}, {"size": 1}, {"namespaces": {"a": {"b": 1}}}]
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, MemorySettings)


def test_a_namespace_has_its_defaults() -> None:
    assert msgspec.convert({"namespaces": {"a": {}}}, MemorySettings).namespaces == {"a": NamespaceMemory()}

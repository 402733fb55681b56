"""Cost-based eviction against one that computes every score anew each time."""

from __future__ import annotations

from math import isclose

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.cache.entries import entry, key

from mpreg.cache.bounds import Bounds
from mpreg.cache.cost import COST_MS_MIN, DEPENDANT_WEIGHT, DEPENDANTS_MAX, HALF_LIFE_MS, STALE_MAX, CostBased
from mpreg.cache.entry import Entry
from mpreg.cache.key import reference_of

HALF_LIFE = int(HALF_LIFE_MS)


def cache(entries_max: int, bytes_max: int = 10**6) -> tuple[CostBased, list[bytes]]:
    out: list[bytes] = []
    return CostBased(Bounds(entries_max, bytes_max), out.append), out


def test_what_was_cheap_to_compute_goes_first() -> None:
    level, out = cache(2)
    level.put(key("dear"), entry(cost_ms=500.0))
    level.put(key("cheap"), entry(cost_ms=5.0))
    level.put(key("other"), entry(cost_ms=50.0))
    assert out == [key("cheap")]


def test_what_is_large_goes_before_what_is_small_and_took_as_long() -> None:
    level, out = cache(2)
    level.put(key("large"), entry(1000, cost_ms=5.0))
    level.put(key("small"), entry(10, cost_ms=5.0))
    level.put(key("other"), entry(10, cost_ms=5.0))
    assert out == [key("large")]


def test_what_is_asked_for_stays_longer() -> None:
    level, out = cache(2)
    for name in "ab":
        level.put(key(name), entry(cost_ms=5.0))
    level.get(key("a"), 10)
    level.put(key("c"), entry(cost_ms=5.0))
    assert out == [key("b")]


def test_what_was_used_long_ago_is_worth_less() -> None:
    level, out = cache(2)
    level.put(key("old"), entry(cost_ms=300.0))
    level.put(key("new"), entry(cost_ms=100.0, created_ms=2 * HALF_LIFE))
    level.put(key("other"), entry(cost_ms=100.0, created_ms=2 * HALF_LIFE))
    assert out == [key("old")]  # 300 / 4 < 100


def test_what_others_were_computed_from_is_worth_more() -> None:
    level, out = cache(3)
    level.put(key("source"), entry(cost_ms=5.0))
    level.put(key("plain"), entry(cost_ms=5.2))
    level.put(key("computed"), entry(cost_ms=9.0, dependencies=(reference_of(key("source")),)))
    level.put(key("other"), entry(cost_ms=9.0))
    assert out == [key("plain")]
    level.remove(key("computed"))
    level.put(key("more"), entry(cost_ms=9.0))
    level.put(key("most"), entry(cost_ms=9.0))
    assert out == [key("plain"), key("source")]


def test_its_score_is_told_by_its_parts() -> None:
    level, _ = cache(3)
    level.put(key("a"), entry(10, cost_ms=50.0))
    level.put(key("b"), entry(10, dependencies=(reference_of(key("a")),)))
    level.get(key("a"), 0)
    score = level.score(key("a"), HALF_LIFE)
    assert score["computation_cost"] == 50.0
    assert score["access_frequency"] == 2.0
    assert score["recency_factor"] == 0.5
    assert score["size_penalty"] == 0.1
    assert score["dependency_weight"] == 1.1
    product = 50.0 * 2.0 * 0.5 * 0.1 * 1.1
    assert isclose(score["final_score"], product)


def test_uses_leave_nothing_behind() -> None:
    level, _ = cache(10)
    for n in range(10_000):
        level.put(key(n % 20), entry(n % 5 + 1, cost_ms=n % 7))
        level.get(key(n % 11), n)
    assert len(level._heap) <= 2 * len(level) + STALE_MAX + 1
    level.clear()
    assert (len(level), level.size_bytes, level._heap, level._dependants) == (0, 0, [], {})


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), max_size=200))
def test_it_never_holds_more_than_it_may(steps: list[tuple[int, int]]) -> None:
    level, out = cache(8, 60)
    held: dict[bytes, int] = {}
    for name, size in steps:
        level.put(key(name), entry(size))
        held[key(name)] = size
        for gone in out:
            del held[gone]
        out.clear()
        assert len(level) <= 8
        assert level.size_bytes == sum(held.values()) <= 60
        assert set(level.keys()) == set(held)


class Scored:
    """Every score computed anew for every eviction."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.held: dict[bytes, tuple[Entry, float, int]] = {}
        self.out: list[bytes] = []
        self.now = 0

    def weight(self, name: bytes) -> float:
        reference = reference_of(name)
        dependants = sum(other.dependencies.count(reference) for other, _, _ in self.held.values())
        return 1.0 + DEPENDANT_WEIGHT * min(dependants, DEPENDANTS_MAX)

    def score(self, name: bytes) -> float:
        held, uses, used = self.held[name]
        recency = 2.0 ** ((used - self.now) / HALF_LIFE_MS)
        return max(held.cost_ms, COST_MS_MIN) * uses * recency / max(1, len(held.value)) * self.weight(name)

    def use(self, name: bytes) -> None:
        held, uses, used = self.held[name]
        self.held[name] = (held, uses * 2.0 ** ((used - self.now) / HALF_LIFE_MS) + 1.0, self.now)

    def room(self, entries: int, size: int, gone: list[bytes]) -> None:
        """`gone` is what the other one gave up: near ties may be decided either way."""
        while len(self.held) + entries > self.bounds.entries_max or self.bytes + size > self.bounds.bytes_max:
            least = min(map(self.score, self.held))
            name = gone[len(self.out)]
            assert self.score(name) <= least * (1 + 1e-9)
            del self.held[name]
            self.out.append(name)

    @property
    def bytes(self) -> int:
        return sum(len(held.value) for held, _, _ in self.held.values())


NAMES = [key(letter) for letter in "abcdefgh"]
KEYS = st.sampled_from(NAMES)
DEPENDENCIES = st.lists(KEYS.map(reference_of), max_size=3, unique=True).map(tuple)


class CostBasedAgainstScores(RuleBasedStateMachine):
    @initialize(entries_max=st.integers(1, 6), bytes_max=st.integers(20, 60))
    def start(self, entries_max: int, bytes_max: int) -> None:
        self.out: list[bytes] = []
        self.model = Scored(Bounds(entries_max, bytes_max))
        self.cache = CostBased(self.model.bounds, self.out.append)

    @rule(name=KEYS, later=st.integers(0, 2 * HALF_LIFE))
    def get(self, name: bytes, later: int) -> None:
        self.model.now += later
        held = self.model.held.get(name)
        assert self.cache.get(name, self.model.now) is (None if held is None else held[0])
        if held is not None:
            self.model.use(name)

    @rule(name=KEYS, size=st.integers(0, 20), cost=st.floats(0, 1000), dependencies=DEPENDENCIES)
    def put(self, name: bytes, size: int, cost: float, dependencies: tuple[str, ...]) -> None:
        new = entry(size, cost_ms=cost, dependencies=dependencies, created_ms=self.model.now)
        self.cache.put(name, new)
        if name in self.model.held:
            self.model.held[name] = (new, *self.model.held[name][1:])
            self.model.room(0, 0, self.out)
            if name in self.model.held:
                self.model.use(name)
        else:
            self.model.room(1, size, self.out)
            self.model.held[name] = (new, 1.0, self.model.now)

    @rule(name=KEYS, size=st.integers(0, 20), cost=st.floats(0, 1000))
    def renew(self, name: bytes, size: int, cost: float) -> None:
        new = entry(size, cost_ms=cost)
        assert self.cache.renew(name, new) == (name in self.model.held)
        if name in self.model.held:
            self.model.held[name] = (new, *self.model.held[name][1:])
            self.model.room(0, 0, self.out)

    @rule(name=KEYS)
    def remove(self, name: bytes) -> None:
        assert self.cache.remove(name) == (self.model.held.pop(name, None) is not None)

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "cache"):
            return
        assert self.out == self.model.out
        assert {name: self.cache.peek(name) for name in self.cache.keys()} == {  # noqa: SIM118
            name: held for name, (held, _, _) in self.model.held.items()
        }
        assert self.cache.size_bytes == self.model.bytes <= self.model.bounds.bytes_max
        for name in self.model.held:
            assert isclose(self.cache.score(name, self.model.now)["final_score"], self.model.score(name))


TestCostBasedAgainstScores = CostBasedAgainstScores.TestCase

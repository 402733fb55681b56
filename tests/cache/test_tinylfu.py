"""W-TinyLFU: what it keeps while a scan passes, and against one that is written with lists."""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.cache.entries import entry

from mpreg.cache.bounds import Bounds, Policy
from mpreg.cache.entry import Entry
from mpreg.cache.frequency import Frequency
from mpreg.cache.s4lru import S4Lru
from mpreg.cache.tinylfu import WINDOW_PARTS, WTinyLfu


def hits(policy: Policy, trace: list[bytes]) -> int:
    found = 0
    for key in trace:
        if policy.get(key, 0) is None:
            policy.put(key, entry())
        else:
            found += 1
    return found


def nothing(_key: bytes) -> None: ...


def test_a_scan_pushes_nothing_out_that_is_asked_for() -> None:
    cache = WTinyLfu(Bounds(100, 10**6), nothing)
    loved = [b"loved-%d" % n for n in range(80)]
    hits(cache, loved * 4)
    hits(cache, [b"scan-%d" % n for n in range(5_000)])
    assert sum(cache.peek(key) is not None for key in loved) >= 75


def test_a_loop_larger_than_the_room_has_hits() -> None:
    loop = [b"%d" % n for n in range(200)] * 20
    assert hits(S4Lru(Bounds(100, 10**6), nothing), loop) == 0
    assert hits(WTinyLfu(Bounds(100, 10**6), nothing), loop) > 0.3 * len(loop)


def test_it_has_more_hits_than_s4lru_where_few_keys_are_asked_for_often() -> None:
    dice = random.Random(7)
    trace = [b"%d" % int(dice.paretovariate(0.8)) for _ in range(30_000)]
    room = Bounds(100, 10**6)
    assert hits(WTinyLfu(room, nothing), trace) > hits(S4Lru(room, nothing), trace)


class Lists:
    """The definition, word by word. What goes next comes first."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        window = max(1, bounds.entries_max // WINDOW_PARTS)
        self.window_max = (window, bounds.bytes_max // WINDOW_PARTS)
        self.protected_max = (
            int((bounds.entries_max - window) * 0.8),
            int((bounds.bytes_max - self.window_max[1]) * 0.8),
        )
        self.frequency = Frequency(bounds.entries_max)
        self.parts: dict[str, list[tuple[bytes, Entry]]] = {"probation": [], "protected": [], "window": []}
        self.out: list[bytes] = []

    def part_of(self, key: bytes) -> str | None:
        return next((name for name, part in self.parts.items() if key in dict(part)), None)

    def size(self, part: str) -> int:
        return sum(len(held.value) for _, held in self.parts[part])

    def all(self) -> list[tuple[bytes, Entry]]:
        return [pair for part in self.parts.values() for pair in part]

    def use(self, key: bytes) -> Entry | None:
        self.frequency.add(key)
        name = self.part_of(key)
        if name is None:
            return None
        held = dict(self.parts[name])[key]
        self.remove(key)
        self.parts["protected" if name == "probation" else name].append((key, held))
        while self.over("protected", self.protected_max):
            self.parts["probation"].append(self.parts["protected"].pop(0))
        return held

    def over(self, part: str, most: tuple[int, int]) -> bool:
        return len(self.parts[part]) > most[0] or self.size(part) > most[1]

    def put(self, key: bytes, new: Entry) -> None:
        if len(new.value) > self.bounds.bytes_max:
            self.remove(key)
        elif self.part_of(key) is not None:
            self.renew(key, new)
            if self.part_of(key) is not None:
                self.use(key)
        else:
            self.frequency.add(key)
            self.parts["window"].append((key, new))
            self.settle()

    def renew(self, key: bytes, new: Entry) -> None:
        name = self.part_of(key)
        if name is not None and len(new.value) <= self.bounds.bytes_max:
            self.parts[name] = [(k, new if k == key else held) for k, held in self.parts[name]]
            self.settle()

    def remove(self, key: bytes) -> None:
        self.parts = {name: [pair for pair in part if pair[0] != key] for name, part in self.parts.items()}

    def settle(self) -> None:
        while self.over("window", self.window_max):
            self.admit(*self.parts["window"].pop(0))
        while self.too_much([]):
            self.out.append(self.next_to_go())
            self.remove(self.out[-1])

    def too_much(self, more: list[tuple[bytes, Entry]]) -> bool:
        held = self.all() + more
        return len(held) > self.bounds.entries_max or sum(len(e.value) for _, e in held) > self.bounds.bytes_max

    def next_to_go(self) -> bytes:
        return next(part[0][0] for part in self.parts.values() if part)

    def admit(self, key: bytes, new: Entry) -> None:
        while self.too_much([(key, new)]):
            if not self.all() or self.frequency.of(self.next_to_go()) >= self.frequency.of(key):
                self.out.append(key)
                return
            self.out.append(self.next_to_go())
            self.remove(self.out[-1])
        self.parts["probation"].append((key, new))


KEYS = st.sampled_from([bytes([letter]) for letter in b"abcdefghijkl"])
SIZES = st.integers(0, 12)


class WTinyLfuAgainstLists(RuleBasedStateMachine):
    @initialize(entries_max=st.integers(1, 8), bytes_max=st.integers(10, 1_000))
    def start(self, entries_max: int, bytes_max: int) -> None:
        self.bounds = Bounds(entries_max, bytes_max)
        self.out: list[bytes] = []
        self.cache = WTinyLfu(self.bounds, self.out.append)
        self.model = Lists(self.bounds)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.cache.get(key, 0) is self.model.use(key)

    @rule(key=KEYS, size=SIZES)
    def put(self, key: bytes, size: int) -> None:
        new = entry(size)
        self.model.put(key, new)
        self.cache.put(key, new)

    @rule(key=KEYS, size=SIZES)
    def renew(self, key: bytes, size: int) -> None:
        new = entry(size)
        self.model.renew(key, new)
        self.cache.renew(key, new)

    @rule(key=KEYS)
    def remove(self, key: bytes) -> None:
        assert self.cache.remove(key) == (self.model.part_of(key) is not None)
        self.model.remove(key)

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "cache"):
            return
        assert {key: self.cache.peek(key) for key in self.cache.keys()} == dict(self.model.all())  # noqa: SIM118
        assert self.out == self.model.out
        assert len(self.cache) == len(self.model.all()) <= self.bounds.entries_max
        assert self.cache.size_bytes == sum(len(e.value) for _, e in self.model.all()) <= self.bounds.bytes_max


TestWTinyLfuAgainstLists = WTinyLfuAgainstLists.TestCase

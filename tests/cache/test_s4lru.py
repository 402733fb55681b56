"""S4LRU by hand from its definition, and against one that is written with lists."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.cache.entries import entry

from mpreg.cache.bounds import Bounds
from mpreg.cache.entry import Entry
from mpreg.cache.s4lru import S4Lru


def lru(entries_max: int, bytes_max: int = 10**6) -> tuple[S4Lru, list[bytes]]:
    out: list[bytes] = []
    return S4Lru(Bounds(entries_max, bytes_max), out.append), out


def names(cache: S4Lru) -> list[str]:
    """Each segment from head to tail, as one word."""
    return [b"".join(segment).decode() for segment in cache.segments()]


def fill(cache: S4Lru, letters: str, size: int = 1) -> None:
    for letter in letters:
        assert cache.put(letter.encode(), entry(size))


def ask(cache: S4Lru, letters: str) -> None:
    for letter in letters:
        assert cache.get(letter.encode(), 0) is not None


def test_a_new_entry_goes_to_the_head_of_the_lowest_segment() -> None:
    cache, out = lru(8)
    fill(cache, "ab")
    assert names(cache) == ["ba", "", "", ""]
    assert out == []


def test_what_overflows_the_lowest_segment_is_out() -> None:
    cache, out = lru(8)
    fill(cache, "abc")
    assert names(cache) == ["cb", "", "", ""]
    assert out == [b"a"]


def test_a_hit_moves_an_entry_to_the_head_of_the_next_segment() -> None:
    cache, _ = lru(8)
    fill(cache, "ab")
    ask(cache, "ab")
    assert names(cache) == ["", "ba", "", ""]
    ask(cache, "a")
    assert names(cache) == ["", "b", "a", ""]


def test_a_hit_in_the_top_segment_moves_an_entry_to_its_head() -> None:
    cache, _ = lru(8)
    fill(cache, "ab")
    ask(cache, "aaabbb")
    assert names(cache) == ["", "", "", "ba"]
    ask(cache, "a")
    assert names(cache) == ["", "", "", "ab"]


def test_overflow_of_a_segment_moves_its_tail_to_the_head_of_the_one_below() -> None:
    cache, out = lru(4)  # one place a segment
    for letter in "abcd":
        fill(cache, letter)
        ask(cache, letter * 3)
    assert names(cache) == ["a", "b", "c", "d"]
    fill(cache, "e")
    assert names(cache) == ["e", "b", "c", "d"]
    assert out == [b"a"]
    ask(cache, "e")
    assert names(cache) == ["b", "e", "c", "d"]
    ask(cache, "b")
    assert names(cache) == ["e", "b", "c", "d"]


def test_an_entry_that_is_never_asked_for_again_passes_through_a_quarter_of_the_room() -> None:
    cache, out = lru(8)
    fill(cache, "ab")
    ask(cache, "ab")
    fill(cache, "cdefgh")
    assert names(cache) == ["hg", "ba", "", ""]
    assert out == [b"c", b"d", b"e", b"f"]


def test_a_put_of_what_is_there_is_a_use() -> None:
    cache, out = lru(8)
    fill(cache, "aa")
    assert names(cache) == ["", "a", "", ""]
    assert out == []


def test_what_is_renewed_stays_where_it_is() -> None:
    cache, _ = lru(8)
    fill(cache, "ab")
    newer = entry(2, version=2)
    assert cache.renew(b"a", newer)
    assert names(cache) == ["ba", "", "", ""]
    assert cache.peek(b"a") is newer
    assert cache.size_bytes == 3
    assert not cache.renew(b"c", newer)


def test_bytes_are_bounded_by_the_segment_too() -> None:
    cache, out = lru(100, 40)
    fill(cache, "ab", 5)
    assert names(cache) == ["ba", "", "", ""]
    fill(cache, "c", 6)
    assert names(cache) == ["c", "", "", ""]
    assert out == [b"a", b"b"]


def test_an_entry_larger_than_a_segment_is_not_kept_nor_what_it_replaces() -> None:
    cache, out = lru(100, 40)
    fill(cache, "a", 10)
    assert not cache.put(b"a", entry(11))
    assert len(cache) == cache.size_bytes == 0
    assert out == []


def test_an_entry_that_grows_where_it_is_pushes_others_out() -> None:
    cache, out = lru(100, 40)
    fill(cache, "ab", 5)
    assert cache.renew(b"b", entry(9))
    assert names(cache) == ["b", "", "", ""]
    assert out == [b"a"]


@pytest.mark.parametrize("entries_max", [0, 1, 2, 3, 5])
def test_room_for_a_handful(entries_max: int) -> None:
    cache, _ = lru(entries_max)
    for letter in "abcabcaabbcc":
        cache.put(letter.encode(), entry())
        cache.get(letter.encode(), 0)
        assert len(cache) <= entries_max
    assert len(cache) == entries_max if entries_max < 3 else len(cache) <= 3


class Lists:
    """The definition, word by word. Heads come first."""

    def __init__(self, bounds: Bounds) -> None:
        self.shares = [bounds.share(segment, 4) for segment in range(4)]
        self.segments: list[list[tuple[bytes, Entry]]] = [[], [], [], []]
        self.out: list[bytes] = []

    def find(self, key: bytes) -> tuple[int, int] | None:
        return next(
            ((s, n) for s, held in enumerate(self.segments) for n, (name, _) in enumerate(held) if name == key), None
        )

    def use(self, key: bytes, entry: Entry | None = None) -> None:
        found = self.find(key)
        if found is None:
            return
        segment, at = found
        name, held = self.segments[segment].pop(at)
        up = min(segment + 1, 3)
        self.segments[up].insert(0, (name, entry or held))
        self.overflow()

    def put(self, key: bytes, entry: Entry) -> None:
        found = self.find(key)
        if len(entry.value) > self.shares[3].bytes_max:
            self.remove(key)
        elif found is not None:
            self.use(key, entry)
        else:
            self.segments[0].insert(0, (key, entry))
            self.overflow()

    def renew(self, key: bytes, entry: Entry) -> None:
        found = self.find(key)
        if found is not None and len(entry.value) <= self.shares[3].bytes_max:
            self.segments[found[0]][found[1]] = (key, entry)
            self.overflow()

    def remove(self, key: bytes) -> None:
        self.segments = [[pair for pair in held if pair[0] != key] for held in self.segments]

    def overflow(self) -> None:
        for segment in (3, 2, 1, 0):
            held, share = self.segments[segment], self.shares[segment]
            while len(held) > share.entries_max or sum(len(e.value) for _, e in held) > share.bytes_max:
                tail = held.pop()
                if segment:
                    self.segments[segment - 1].insert(0, tail)
                else:
                    self.out.append(tail[0])


KEYS = st.sampled_from([bytes([letter]) for letter in b"abcdefghijkl"])
SIZES = st.integers(0, 12)


class S4LruAgainstLists(RuleBasedStateMachine):
    @initialize(entries_max=st.integers(1, 12), bytes_max=st.integers(8, 60))
    def start(self, entries_max: int, bytes_max: int) -> None:
        self.bounds = Bounds(entries_max, bytes_max)
        self.out: list[bytes] = []
        self.cache = S4Lru(self.bounds, self.out.append)
        self.model = Lists(self.bounds)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        found = self.model.find(key)
        expected = None if found is None else self.model.segments[found[0]][found[1]][1]
        self.model.use(key)
        assert self.cache.get(key, 0) is expected

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
        assert self.cache.remove(key) == (self.model.find(key) is not None)
        self.model.remove(key)

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "cache"):
            return
        assert self.cache.segments() == [[name for name, _ in held] for held in self.model.segments]
        assert self.out == self.model.out
        assert self.cache.size_bytes == sum(len(e.value) for held in self.model.segments for _, e in held)
        assert len(self.cache) <= self.bounds.entries_max
        assert self.cache.size_bytes <= self.bounds.bytes_max
        assert sorted(self.cache.keys()) == sorted(name for held in self.model.segments for name, _ in held)


TestS4LruAgainstLists = S4LruAgainstLists.TestCase

"""News: each piece a limited number of times, the newest and least told first, one piece about each thing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.machines import EPOCH, node, said

from mpreg.cluster import broadcasts as module
from mpreg.cluster.broadcasts import Broadcasts
from mpreg.wire.gossip import StateUpdate

LIMIT = 3


def key(name: str, version: int = 1, value: object = 0) -> StateUpdate:
    return StateUpdate(key=name, value=value, version=version, timestamp=EPOCH, source_node="a")


def test_a_piece_is_told_so_often_and_then_no_more() -> None:
    news = Broadcasts()
    news.add(key("x"))
    assert [len(news.take(1000, LIMIT).state) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert len(news) == 0


def test_a_newer_piece_about_the_same_takes_the_place_of_the_older_one() -> None:
    news = Broadcasts()
    news.add(said("suspect", node("b")))
    news.add(said("update", node("b", incarnation=1)))
    assert [each.event_type for each in news.take(1000, LIMIT).members] == ["update"]


def test_the_least_told_goes_first_and_of_those_the_newest() -> None:
    news = Broadcasts()
    for name in "abc":
        news.add(key(name))
    assert [each.key for each in news.take(1, LIMIT).state] == ["c"]
    news.add(key("d"))
    assert [each.key for each in news.take(1000, LIMIT).state] == ["d", "b", "a", "c"]


def test_a_message_takes_no_more_than_it_may_but_always_something() -> None:
    news = Broadcasts()
    news.add(key("large", value="x" * 5000))
    assert [each.key for each in news.take(1200, LIMIT).state] == ["large"]
    for number in range(40):
        news.add(key(f"small{number}", value="x" * 100))
    assert 1 < len(news.take(1200, LIMIT).state) < 12


def test_what_has_to_go_first_goes_in_any_case_and_only_once() -> None:
    news = Broadcasts()
    first = said("suspect", node("b"))
    news.add(first)
    assert news.take(1, LIMIT, first).members == (first,)


def test_there_is_room_for_so_many_and_then_the_most_told_goes() -> None:
    news = Broadcasts()
    news.add(key("told"))
    news.take(1000, LIMIT)
    for number in range(module.WAITING_MAX):
        news.add(key(f"k{number}"))
    assert len(news) == module.WAITING_MAX
    told = {each.key for _ in range(200) for each in news.take(100_000, 1).state}
    assert "told" not in told
    assert len(told) == module.WAITING_MAX


@given(st.lists(st.one_of(st.sampled_from("abcd"), st.integers(1, 400)), max_size=40))
def test_each_piece_is_told_at_most_so_often_whatever_comes_between(happened: list[str | int]) -> None:
    news = Broadcasts()
    version = 0
    told: dict[tuple[str, int], int] = {}
    for each in happened:
        if isinstance(each, str):
            version += 1
            news.add(key(each, version))
            continue
        for update in news.take(each, LIMIT).state:
            told[update.key, update.version] = told.get((update.key, update.version), 0) + 1
        assert len(news) <= 4
    assert all(times <= LIMIT for times in told.values())

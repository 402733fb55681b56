"""Timers, and a roster to draw from, against models that could not be simpler."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from mpreg.cluster.roster import Roster
from mpreg.cluster.timers import Timers

keys = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"))
times = st.integers(0, 20).map(float)


@given(st.lists(st.one_of(st.tuples(st.sampled_from(["set", "earlier", "cancel"]), keys, times), times), max_size=60))
def test_timers_do_what_a_dict_would(happened: list[object]) -> None:
    timers = Timers()
    model: dict[tuple[str, str], float] = {}
    for each in happened:
        match each:
            case "set", key, at:
                timers.set(key, at)
                model[key] = at
            case "earlier", key, at:
                timers.set_earlier(key, at)
                model[key] = min(at, model.get(key, math.inf))
            case "cancel", key, _:
                timers.cancel(key)
                model.pop(key, None)
            case float(now):
                due = list(timers.due(now))
                assert sorted(due) == sorted(key for key, at in model.items() if at <= now)
                assert [model[key] for key in due] == sorted(model[key] for key in due)
                model = {key: at for key, at in model.items() if at > now}
        assert len(timers) == len(model)
        assert timers.next_at() == min(model.values(), default=math.inf)


def test_a_timer_that_is_moved_a_thousand_times_takes_no_more_memory() -> None:
    timers = Timers()
    for at in range(10_000):
        timers.set(("a", "x"), float(at))
    assert len(timers._heap) < 200


def test_time_that_was_not_lived_through_moves_everything() -> None:
    timers = Timers()
    timers.set(("a", "x"), 1.0)
    timers.set(("b", "x"), 5.0)
    timers.shift(10.0)
    assert list(timers.due(10.9)) == []
    assert list(timers.due(11.0)) == [("a", "x")]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9).map(str))), st.integers(0, 5), st.sets(st.sampled_from("0123"))
)
def test_a_roster_is_a_set_that_can_be_drawn_from(
    changes: list[tuple[bool, str]], count: int, without: set[str]
) -> None:
    roster = Roster()
    model: set[str] = set()
    for is_added, name in changes:
        if is_added:
            roster.add(name)
            model.add(name)
        else:
            roster.discard(name)
            model.discard(name)
    assert set(roster) == model
    drawn = roster.draw(random.Random(1), count, without)
    assert len(drawn) == len(set(drawn)) == min(count, len(model - without))
    assert set(drawn) <= model - without

"""Alarms: many sleepers on one timer."""

from __future__ import annotations

import asyncio
import random

import pytest

from mpreg.store import alarms
from mpreg.store.alarms import ROUNDS_PER_S, SPAN_S, Alarms

pytestmark = pytest.mark.anyio


class Sleeper:
    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.at = 0.0

    def wake(self) -> None:
        self.at = asyncio.get_running_loop().time()
        self.woken.set()


@pytest.fixture
async def made() -> Alarms:
    return Alarms(asyncio.get_running_loop().time)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_nobody_is_woken_early_nor_forgotten(made: Alarms) -> None:
    choose = random.Random(1)
    wanted = [(Sleeper(), now() + choose.uniform(0, 0.05)) for _ in range(500)]
    choose.shuffle(wanted)
    for sleeper, at in wanted:
        made.set(sleeper, at, now())
    for sleeper, at in wanted:
        await sleeper.woken.wait()
        assert sleeper.at >= at


async def test_who_has_left_is_not_woken_and_a_round_that_all_have_left_is_not_rung(made: Alarms) -> None:
    at = now() + 0.02  # all three are set before the loop can ring
    leaving, staying, alone = Sleeper(), Sleeper(), Sleeper()
    made.set(leaving, at, now()).discard(leaving)
    made.set(staying, at, now())
    made.set(alone, at + 1, now()).discard(alone)
    await staying.woken.wait()
    assert not leaving.woken.is_set()
    assert made._timer is None, "nobody sleeps any more"


async def test_a_sleeper_may_set_its_next_alarm_when_it_is_woken(made: Alarms) -> None:
    class Again(Sleeper):
        times = 0

        def wake(self) -> None:
            self.times += 1
            if self.times < 3:
                made.set(self, now() + 0.005, now())
            else:
                super().wake()

    again = Again()
    made.set(again, now(), now())
    await again.woken.wait()
    assert again.times == 3


async def test_one_that_ends_another_s_sleep_within_a_round(made: Alarms) -> None:
    """A sleeper that is woken may make others leave: they have to bear being woken all the same, and nothing breaks."""
    at = now() + 0.01
    sleepers = [Sleeper() for _ in range(10)]
    rounds = [made.set(sleeper, at, now()) for sleeper in sleepers]

    class Ends(Sleeper):
        def wake(self) -> None:
            for one, sleeper in zip(rounds, sleepers, strict=True):
                one.discard(sleeper)
            super().wake()

    later = Sleeper()
    made.set(Ends(), at, now())
    made.set(later, at + 0.01, now())
    await later.woken.wait()


async def test_an_earlier_alarm_comes_first(made: Alarms) -> None:
    order: list[str] = []

    class Named(Sleeper):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def wake(self) -> None:
            order.append(self.name)
            super().wake()

    late, early = Named("late"), Named("early")
    made.set(late, now() + 0.05, now())
    made.set(early, now() + 0.01, now())
    await late.woken.wait()
    assert order == ["early", "late"]


async def test_a_long_sleep_is_interrupted_now_and_then(made: Alarms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "SPAN_S", 0.01)
    sleeper = Sleeper()
    made.set(sleeper, now() + 1_000_000, now())
    await sleeper.woken.wait()


async def test_rounds_are_few_however_many_sleep_and_leave(made: Alarms) -> None:
    choose = random.Random(2)
    start = now()
    for _ in range(20_000):
        sleeper = Sleeper()
        made.set(sleeper, start + choose.uniform(0, 1_000_000), start).discard(sleeper)
    assert len(made._rounds) == len(made._order) <= SPAN_S * ROUNDS_PER_S + 1


async def test_a_sleeper_that_fails_takes_no_other_along(made: Alarms) -> None:
    class Fails(Sleeper):
        def wake(self) -> None:
            raise RuntimeError("on purpose")

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context.get("exception")))
    at = now() + 0.01
    same, later = [Sleeper() for _ in range(5)], Sleeper()
    for sleeper in (Fails(), *same):
        made.set(sleeper, at, now())
    made.set(later, at + 0.01, now())
    for sleeper in (*same, later):
        await sleeper.woken.wait()
    assert [str(failure) for failure in failures] == ["on purpose"]

"""The first step is taken at once, and nothing that a function can see tells whether it was."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mpreg.rpc.starting import Starter

pytestmark = pytest.mark.anyio

color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")


async def started(starter: Starter, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """From a callback of the loop, as a link does it."""
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: done.set_result(starter.start(work)))
    found: asyncio.Task[None] | None = await done
    return found


@pytest.fixture
async def starter() -> Any:
    starter = Starter(asyncio.get_running_loop())
    yield starter
    starter.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    left = [task.get_coro() for task in asyncio.all_tasks()]
    assert not [coro for coro in left if "starting" in str(coro) or "work" in str(coro)]


async def test_what_does_not_wait_is_finished_at_once_without_a_task_of_its_own(starter: Starter) -> None:
    seen = []

    async def work() -> None:
        seen.append(id(asyncio.current_task()))

    for _ in range(3):
        assert await started(starter, work()) is None
    assert len(set(seen)) == 1


async def test_what_waits_goes_on_in_the_task_and_with_the_variables_of_its_first_step(starter: Starter) -> None:
    go = asyncio.Event()
    seen: list[Any] = []

    async def work() -> None:
        color.set("red")
        seen.append(asyncio.current_task())
        await go.wait()
        seen.append(asyncio.current_task())
        seen.append(color.get())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    task = await started(starter, work())
    assert task is not None
    other = await started(starter, work())
    assert other is not task
    go.set()
    await asyncio.gather(task, other)
    assert seen.count(task) == seen.count(other) == 3
    assert seen.count("red") == 2
    assert color.get() == "none"


async def test_a_variable_that_one_sets_is_not_seen_by_the_next(starter: Starter) -> None:
    seen = []

    async def work() -> None:
        seen.append(color.get())
        color.set("red")

    await started(starter, work())
    await started(starter, work())
    assert seen == ["none", "none"]


@pytest.mark.parametrize(
    "leave",
    [
        lambda task, kept: kept.append(task),
        lambda task, kept: task.add_done_callback(kept.append),
        lambda task, kept: kept.append(__import__("weakref").ref(task)),
        lambda task, kept: task.cancel(),
    ],
    ids=["reference", "callback", "weak reference", "cancel"],
)
async def test_a_task_in_which_something_was_left_is_not_used_again(
    starter: Starter, leave: Callable[[Any, list[Any]], Any]
) -> None:
    kept: list[Any] = []
    names = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())
        leave(task, kept)

    await started(starter, work())
    await started(starter, work())
    assert len(set(names)) == 2


async def test_a_timeout_that_begins_in_the_first_step_works(starter: Starter) -> None:
    outcome = []

    async def work() -> None:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            outcome.append("timed out")

    task = await started(starter, work())
    assert task is not None
    await task
    assert outcome == ["timed out"]
    assert task.cancelling() == 0


async def test_a_task_group_in_the_first_step_works(starter: Starter) -> None:
    outcome = []

    async def fail() -> None:
        raise ValueError("one")

    async def work() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(asyncio.Event().wait())
        except* ValueError:
            outcome.append("failed")

    task = await started(starter, work())
    assert task is not None
    await task
    assert outcome == ["failed"]


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_it_can_be_cancelled_whenever_it_waits(starter: Starter, turns: int) -> None:
    outcome = []
    waited = asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            await waited
        except asyncio.CancelledError:
            outcome.append("cancelled")
            await asyncio.sleep(0)
            outcome.append("cleaned up")
            raise

    loop = asyncio.get_running_loop()
    begun: list[asyncio.Task[None] | None] = []

    def begin() -> None:
        begun.append(starter.start(work()))
        if turns == 0:
            assert begun[0] is not None
            begun[0].cancel()

    loop.call_soon(begin)
    await asyncio.sleep(0)
    task = begun[0]
    assert task is not None
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert outcome == ["cancelled", "cleaned up"]
    assert waited.cancelled()


async def test_a_cancel_before_its_second_step_reaches_one_that_only_yielded(starter: Starter) -> None:
    outcome = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            outcome.append("cancelled")

    loop = asyncio.get_running_loop()
    begun: list[Any] = []

    def begin() -> None:
        begun.append(starter.start(work()))
        begun[0].cancel()

    loop.call_soon(begin)
    await asyncio.sleep(0)
    await begun[0]
    assert outcome == ["cancelled"]


async def test_a_first_step_that_cancels_itself_is_cancelled_where_it_waits(starter: Starter) -> None:
    outcome = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            outcome.append("cancelled")
            raise

    task = await started(starter, work())
    assert task is not None
    with pytest.raises(asyncio.CancelledError):
        await task
    assert outcome == ["cancelled"]


async def test_a_start_within_another_task_leaves_that_task_alone(starter: Starter) -> None:
    seen = []

    async def work() -> None:
        seen.append(asyncio.current_task())

    mine = asyncio.current_task()
    task = starter.start(work())
    assert task is not None
    assert asyncio.current_task() is mine
    await task
    assert seen == [task]


async def test_many_wait_at_once(starter: Starter) -> None:
    go = asyncio.Event()
    done = []

    async def work(number: int) -> None:
        await go.wait()
        done.append(number)

    tasks = [await started(starter, work(number)) for number in range(100)]
    go.set()
    await asyncio.gather(*(task for task in tasks if task is not None))
    assert sorted(done) == list(range(100))

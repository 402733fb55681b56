from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from mpreg.errors import MpregError
from mpreg.rpc import Threads

pytestmark = pytest.mark.anyio

color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")


async def test_results_come_back_to_the_loop_in_whatever_number() -> None:
    threads = Threads(asyncio.get_running_loop(), threads_max=3)
    futures = [threads.submit(lambda n=n: n * n, (), {}) for n in range(200)]
    assert await asyncio.gather(*futures) == [n * n for n in range(200)]
    threads.close()


async def test_no_more_threads_than_allowed_run_at_once() -> None:
    threads = Threads(asyncio.get_running_loop(), threads_max=2)
    both, seen = threading.Barrier(3), set()

    def work() -> None:
        seen.add(threading.current_thread())
        both.wait(60)

    futures = [threads.submit(work, (), {}) for _ in range(4)]
    for _ in range(2):
        await asyncio.to_thread(both.wait, 60)
    await asyncio.gather(*futures)
    assert len(seen) == 2
    threads.close()


async def test_a_call_sees_the_variables_of_the_caller_and_keeps_its_own() -> None:
    threads = Threads(asyncio.get_running_loop(), threads_max=1)

    def work() -> str:
        seen = color.get()
        color.set("blue")
        return seen

    color.set("red")
    assert await threads.submit(work, (), {}) == "red"
    assert await threads.submit(work, (), {}) == "red"
    assert color.get() == "red"
    threads.close()


async def test_idle_threads_end_when_the_pool_is_closed() -> None:
    threads = Threads(asyncio.get_running_loop(), threads_max=4)
    found: list[threading.Thread] = await asyncio.gather(
        *(threads.submit(threading.current_thread, (), {}) for _ in range(8))
    )
    threads.close()
    for thread in found:
        await asyncio.to_thread(thread.join, 60)
        assert not thread.is_alive()


async def test_a_system_without_threads_left_refuses_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(asyncio.get_running_loop(), threads_max=4)

    def none_left(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(MpregError) as caught:
        threads.submit(print, (), {})
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    monkeypatch.undo()
    assert await threads.submit(lambda: 1, (), {}) == 1
    threads.close()


async def test_a_call_that_outlives_its_loop_harms_nobody() -> None:
    release, ended = threading.Event(), threading.Event()

    def work() -> None:
        release.wait(60)

    async def short() -> threading.Thread:
        threads = Threads(asyncio.get_running_loop(), threads_max=1)
        thread = await threads.submit(threading.current_thread, (), {})
        threads.submit(work, (), {})
        threads.close()
        assert isinstance(thread, threading.Thread)
        return thread

    thread = await asyncio.to_thread(lambda: asyncio.run(short()))
    release.set()
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()
    ended.set()

"""From a function that answers with what it returns to what a backend calls; sync ones run in threads."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mpreg.apps.muf.request import Request
from mpreg.rpc import Threads

ERROR_CHARS_MAX: Final = 10_000

Handle = Callable[[Request], Awaitable[None]]


class Late(Exception):
    """The request expired before its function could begin; it is not answered."""


def is_async(call: Callable[[Request], Any]) -> bool:
    return asyncio.iscoroutinefunction(call) or asyncio.iscoroutinefunction(type(call).__call__)


def handler_of(call: Callable[[Request], Any], threads: Threads) -> Handle:
    async def answer(request: Request) -> None:
        result = await call(request)
        if not request.answered:
            await request.reply(b"" if result is None else result)

    async def answer_from_thread(request: Request) -> None:
        result = await threads.submit(in_time, (call, request), {})
        if inspect.isawaitable(result):
            result = await result
        if not request.answered:
            await request.reply(b"" if result is None else result)

    return answer if is_async(call) else answer_from_thread


def in_time(call: Callable[[Request], Any], request: Request) -> Any:
    """A thread may be long in coming."""
    if request.expired:
        raise Late
    return call(request)


def described(raised: BaseException) -> str:
    """What an asker is told of an exception: its class and text, never a traceback."""
    try:
        text = str(raised)
    except Exception:  # noqa: BLE001 - the exception's own class may be broken
        text = ""
    return f"{type(raised).__name__}: {text}"[:ERROR_CHARS_MAX]

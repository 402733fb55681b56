"""The Python client that the note prints, with the `websockets` library of today."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
import types
import uuid
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from tests.conformance.served import Served
from tests.interop.printed_clients import NOTE_URL, printed

pytestmark = pytest.mark.anyio

RENAMED = ("extra_headers=headers", "additional_headers=headers")


def module(url: str) -> types.ModuleType:
    found = types.ModuleType("printed_client")
    found.__dict__.update(time=time, uuid=uuid)  # the note forgets to import them
    exec(compile(printed("client.py", RENAMED, (NOTE_URL, url)), "printed/client.py", "exec"), found.__dict__)
    return found


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Any]:
    client = module(served.listeners["ws"]).MPREGClient(served.listeners["ws"], "your-auth-token")
    await client.connect()
    yield client
    await client.websocket.close()


async def test_it_calls_functions(client: Any) -> None:
    assert await client.call("compute_fibonacci", 10) == 55
    assert await client.call("join", "a", "b", by="+") == "a+b"
    assert await client.call("echo", {"a": [1, None, "é"]}) == {"a": [1, None, "é"]}


async def test_it_raises_what_went_wrong(client: Any) -> None:
    with pytest.raises(Exception, match="RPC_FUNCTION_NOT_FOUND"):
        await client.call("no_such_function")
    with pytest.raises(Exception, match="RPC_INVALID_ARGUMENT"):
        await client.call("compute_fibonacci", "ten")
    assert await client.call("compute_fibonacci", 1) == 1


async def test_it_needs_no_token(served: Served) -> None:
    client = module(served.listeners["ws"]).MPREGClient(served.listeners["ws"])
    await client.connect()
    assert await client.call("add", 1, 2) == 3
    await client.websocket.close()


async def test_its_example_calls_as_printed(served: Served) -> None:
    """Up to the minute for which it sleeps at its end. It never closes, and it awaits a callback that is not async."""
    example = module(served.listeners["ws"])
    slept = asyncio.Event()
    clients: list[Any] = []
    tasks: list[asyncio.Task[Any]] = []

    async def sleep(_seconds: float) -> None:
        slept.set()

    def create_task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    class Client(example.MPREGClient):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            clients.append(self)

    example.__dict__.update(asyncio=types.SimpleNamespace(sleep=sleep, create_task=create_task), MPREGClient=Client)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        await example.main()
        for client in clients:
            await client.websocket.close()
        problems = await asyncio.gather(*tasks, return_exceptions=True)
    assert slept.is_set()
    assert "Fibonacci(10) = 55" in output.getvalue()
    assert len(clients) == len(tasks) == 1
    assert all(problem is None or isinstance(problem, TypeError) for problem in problems)

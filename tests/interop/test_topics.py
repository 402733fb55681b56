"""Publishing and subscribing with the clients that the note prints. (The Go client has neither.)"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.served import Served
from tests.interop.printed_clients import NOTE_URL, printed
from tests.interop.test_javascript import driven, node, run
from tests.interop.test_python import module

pytestmark = pytest.mark.anyio

__all__ = ["node"]

MESSAGE = {"topic", "payload", "timestamp", "message_id", "publisher", "headers"}


@pytest.fixture
async def connected(served: Served) -> AsyncIterator[Any]:
    """Makes printed Python clients, and closes them after the test."""
    made: list[Any] = []

    async def connect() -> Any:
        made.append(module(served.listeners["ws"]).MPREGClient(served.listeners["ws"], "your-auth-token"))
        await made[-1].connect()
        return made[-1]

    yield connect
    for client in made:
        await client.websocket.close()


async def test_python_publishes_and_subscribes(connected: Any) -> None:
    publisher, subscriber = await connected(), await connected()
    got: list[Any] = []
    came = asyncio.Event()

    async def callback(message: Any) -> None:
        got.append(message)
        came.set()

    async def next_message() -> Any:
        await came.wait()
        came.clear()
        return got[-1]

    await publisher.publish("py.before", {"n": 0}, priority="normal")
    assert await publisher.call("echo", "nothing else comes on this connection") is not None
    id = await subscriber.subscribe(["py.*", "none.#"], callback)
    before = await next_message()
    assert id.startswith("sub-")
    assert set(before) == MESSAGE
    assert (before["topic"], before["payload"], before["headers"]) == ("py.before", {"n": 0}, {"priority": "normal"})
    await publisher.publish("py.too.deep", 1)
    await publisher.publish("py.after", [1, None, "é"])
    after = await next_message()
    assert (after["topic"], after["payload"], after["publisher"]) == ("py.after", [1, None, "é"], "python-client")
    assert len(got) == 2


async def test_the_python_example_receives_what_it_published(served: Served) -> None:
    """As printed, its callback is not async, which fails after it has printed the message."""
    example: Any = module(served.listeners["ws"])
    output = io.StringIO()
    heard: list[asyncio.Task[Any]] = []

    class Asyncio:
        @staticmethod
        def create_task(work: Any) -> asyncio.Task[Any]:
            heard.append(asyncio.create_task(work))
            return heard[-1]

        @staticmethod
        async def sleep(_seconds: float) -> None:
            await asyncio.wait(heard)

    class Client(example.MPREGClient):  # type: ignore[misc]
        async def connect(self) -> None:
            await super().connect()
            clients.append(self)

    clients: list[Any] = []
    example.__dict__.update(asyncio=Asyncio, MPREGClient=Client)
    with redirect_stdout(output):
        await example.main()
    (problem,) = [task.exception() for task in heard]
    assert isinstance(problem, TypeError)
    assert "Received: {'topic': 'events.user.login', 'payload': {'user_id': 'user123'," in output.getvalue()
    for client in clients:
        await client.websocket.close()


def test_javascript_publishes_and_subscribes(node: str, served: Served, tmp_path: Path) -> None:
    body = """
      const next = () => new Promise((resolve) => { found.resolve = resolve; });
      await client.publish("js.before", { n: 0 }, { priority: "normal" });
      let waiting = next();
      const id = await client.subscribe(["js.*", "none.#"], (message) => found.resolve(message));
      const before = await waiting;
      waiting = next();
      await client.publish("js.too.deep", 1);
      await client.publish("js.after", [1, null, "é"]);
      const after = await waiting;
      const answer = await client.call("add", 1, 2);
      delete found.resolve;
      Object.assign(found, { id, before, after, answer });
    """
    found = driven(node, tmp_path, served.listeners["ws"], body)
    assert found["id"].startswith("sub-")
    assert set(found["before"]) == MESSAGE
    assert found["before"]["payload"] == {"n": 0}
    assert found["before"]["headers"] == {"priority": "normal"}
    assert (found["after"]["topic"], found["after"]["payload"]) == ("js.after", [1, None, "é"])
    assert found["after"]["publisher"] == "javascript-client"
    assert found["answer"] == 3, "a call on the same connection finds its answer among notifications"


def test_the_javascript_example_receives_what_it_published(node: str, served: Served, tmp_path: Path) -> None:
    """It never ends by itself; here it ends when it has received."""
    ends = """
    const log = console.log;
    console.log = (...words) => { log(...words); if (words[0] === "Received:") process.exit(0); };
    """
    said = run(node, tmp_path, ends + printed("client.js", (NOTE_URL, served.listeners["ws"])))
    assert "Fibonacci(10) = 55" in said
    assert "topic: 'events.user.login'" in said
    assert "user_id: 'user123'" in said

"""The facade for scripts: the same client, waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import mpreg.sync
from mpreg.errors import PubSubError, RpcError, TimedOut, TransportError
from mpreg.node import Node, Settings
from mpreg.sync import command


class Served:
    """A node in a thread of its own."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.url = ""
        self.settings = settings or Settings(ws="off", tcp=0, store="off", grace_s=0)
        self.cancelled = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    async def _serve(self) -> None:
        node = Node("sync", self.settings)

        @node.function
        async def add(a: int, b: int) -> int:
            return a + b

        @node.function
        async def never() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()

        async with node:
            self.url = node.listeners["tcp"]
            self._started.set()
            await self._stop.wait()

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served() as served:
        yield served


def test_calls_are_waited_for(served: Served) -> None:
    with mpreg.sync.connect(served.url) as client:
        assert client.is_connected
        assert client.url
        assert client.call("add", 1, 2) == 3
        assert client.call("add", 1, 2, result_type=int) == 3
        total = command("add", 1, 2)
        assert client.request([total, command("add", total, total)]) == [3, 6]


def test_errors_are_the_same(served: Served) -> None:
    with mpreg.sync.connect(served.url) as client, pytest.raises(RpcError, match="RPC_FUNCTION_NOT_FOUND"):
        client.call("nothing")


def test_many_threads_share_a_client(served: Served) -> None:
    with mpreg.sync.connect(served.url) as client, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda i: client.call("add", i, i), range(200))) == [2 * i for i in range(200)]


def test_it_works_where_a_loop_runs_already(served: Served) -> None:
    """As in a notebook."""

    async def cell() -> int:
        with mpreg.sync.connect(served.url) as client:
            return client.call("add", 1, 2, result_type=int)

    assert asyncio.run(cell()) == 3


def test_a_closed_client_says_so(served: Served) -> None:
    client = mpreg.sync.connect(served.url)
    client.close()
    client.close()
    with pytest.raises(TransportError, match="closed"):
        client.call("add", 1, 2)


def test_closing_ends_calls_of_other_threads(served: Served) -> None:
    client = mpreg.sync.connect(served.url)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.call, "never")
        while not client.calls_open:
            client.call("add", 1, 2)
        client.close()
        with pytest.raises(TransportError, match="TRANSPORT_CLOSED"):
            waiting.result()
    assert served.cancelled.wait(10)


def test_no_thread_is_left(served: Served) -> None:
    before = threading.active_count()
    with mpreg.sync.connect(served.url) as client:
        client.call("add", 1, 2)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_a_connection_that_fails_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(TransportError):
        mpreg.sync.connect("nonsense")
    assert threading.active_count() == before


# Topics.


def test_messages_are_iterated_or_waited_for(served: Served) -> None:
    with mpreg.sync.connect(served.url) as client:
        client.publish("sync.before", 0, ack=True)
        with client.subscribe("sync.*", backlog=60, payload_type=int) as messages:
            for number in range(1, 4):
                client.publish("sync.now", number, headers={"n": number})
            assert messages.get(timeout=10).payload == 0
            got = []
            for message in messages:
                got.append((message.payload, message.headers))
                if message.payload == 3:
                    break
            assert got == [(number, {"n": number}) for number in range(1, 4)]
            with pytest.raises(TimedOut, match="No message within"):
                messages.get(timeout=0.01)
            client.publish("sync.now", "no number")
            client.publish("sync.now", 4)
            assert messages.get(timeout=10).payload == 4
            assert (messages.invalid, messages.dropped, messages.gaps) == (1, 0, 0)


def test_a_subscription_that_is_closed_ends_the_iteration_in_another_thread(served: Served) -> None:
    with mpreg.sync.connect(served.url) as client, ThreadPoolExecutor(1) as threads:
        messages = client.subscribe("sync.closed")
        reading = threads.submit(lambda: [message.payload for message in messages])
        client.publish("sync.closed", 1, ack=True)
        messages.close()
        assert reading.result(10) in ([1], [])
        messages.close()
        with pytest.raises(TransportError, match="subscription is closed"):
            messages.get()


def test_a_question_is_answered(served: Served) -> None:
    with mpreg.sync.connect(served.url) as asking, mpreg.sync.connect(served.url) as answering:
        with answering.subscribe("sync.double") as questions, ThreadPoolExecutor(1) as threads:
            answer = threads.submit(asking.query, "sync.double", 21)
            question = questions.get(timeout=10)
            answering.reply(question, question.payload * 2)
            assert answer.result(10).payload == 42
        with pytest.raises(TimedOut):
            asking.query("sync.nobody", 1, timeout=0.05)


def test_what_is_wrong_with_a_topic_is_raised_here(served: Served) -> None:
    with mpreg.sync.connect(served.url) as client:
        with pytest.raises(PubSubError, match="PUBSUB_INVALID_TOPIC"):
            client.publish("a.*", 1)
        with pytest.raises(PubSubError, match="PUBSUB_INVALID_PATTERN"):
            client.subscribe("a..b")


def test_the_cache_waited_for(tmp_path: Path) -> None:
    settings = Settings(ws="off", tcp=0, data_dir=str(tmp_path), durability="memory", grace_s=0)
    with Served(settings) as served, mpreg.sync.connect(served.url) as client:
        cache = client.cache("sync.test")
        cache.put("a", [1, 2], ttl=60, tags=["t"])
        assert cache.get("a") == [1, 2]
        assert cache.get_many(["a", "b"]) == {"a": [1, 2]}
        assert cache.incr("n", 2) == 2
        assert cache.compare_and_swap("n", 2, 5)
        assert cache.set("s").add("x", "y") == 2
        assert cache.map("m").set({"a.b": 1}) == 1
        assert {each["identifier"] for each in cache.keys("*")} == {"a", "n", "s", "m"}
        calls: list[int] = []

        @cache.memoize(ttl=60)
        def double(x: int) -> int:
            calls.append(x)
            return 2 * x

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(double, [4] * 20)) == [8] * 20
        assert calls == [4]
        assert double.forget(4)
        pages = list(cache.backup())
        assert cache.clear() == 4
        assert cache.restore(pages[0]) == (4, 0)
        assert cache.get("missing", "default") == "default"

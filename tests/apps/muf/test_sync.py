"""Units for scripts: the same unit, waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from tests.store.servers import StoreServers

from mpreg.apps.muf import MufConnectionLost, MufRemoteError, MufTimeout
from mpreg.apps.muf.sync import Request, Unit
from mpreg.errors import StoreError

Units = Callable[..., Unit]


@pytest.fixture
def unit(store_servers: StoreServers) -> Iterator[Units]:
    with ExitStack() as stack:

        def connect(name: str, **options: object) -> Unit:
            made = Unit.connect(name, store_servers.url, **options)  # type: ignore[arg-type]
            stack.callback(made.close, 0)
            return made

        yield connect


def test_a_script_asks_and_a_function_answers(unit: Units) -> None:
    backend, frontend = unit("BE", codec="json"), unit("FE", codec="json")

    @backend.on_request(group="G")
    def double(request: Request) -> int:
        assert request.unit == "FE"
        return int(request.data) * 2

    assert frontend.request(21) == 42
    assert frontend.answer(frontend.send(4)) == 8
    with pytest.raises(MufRemoteError) as failed:
        frontend.request("x", timeout=10)
    assert failed.value.payload.startswith(b"ValueError: ")


def test_many_threads_ask_at_once_and_each_gets_its_own_answer(unit: Units) -> None:
    backend, frontend = unit("BE"), unit("FE")
    backend.on_request(lambda request: b"of " + request.raw)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: frontend.request(b"%d" % n), range(100))) == [
            b"of %d" % n for n in range(100)
        ]


def test_requests_one_by_one_until_the_unit_is_closed(unit: Units) -> None:
    backend, frontend = unit("BE"), unit("FE")

    def serve() -> None:
        for request in backend.requests(group="G"):
            request.progress(b"seen")
            if request.raw == b"bad":
                request.fail("no")
            else:
                request.reply(request.raw.upper())

    serving = threading.Thread(target=serve)
    serving.start()
    assert frontend.request(b"good", id="1") == b"GOOD"
    assert next(frontend.progress("1", backend="BE")) == b"seen"
    with pytest.raises(MufRemoteError):
        frontend.request(b"bad")
    backend.close()
    serving.join(10)
    assert not serving.is_alive()


def test_state_is_kept_read_and_watched(unit: Units) -> None:
    one, other = unit("ONE", alive=True, codec="str"), unit("OTHER", codec="str")
    one.keep("state", "first", ttl=None)
    assert other.kept("state", unit="ONE") == "first"
    values = other.watch("state", unit="ONE")
    assert next(values) == "first"
    one.keep("state", "second")
    assert next(values) == "second"
    values.close()  # type: ignore[attr-defined]
    assert other.is_alive("ONE")
    assert not other.is_alive("NOBODY")
    assert one.statistics.calls == 0


def test_errors_are_those_of_the_unit(unit: Units) -> None:
    frontend = unit("FE")
    with pytest.raises(MufTimeout):
        frontend.request(b"x", timeout=0.05)
    with pytest.raises(ValueError, match="ttl"):
        frontend.request(b"x", ttl=0)
    with pytest.raises(ValueError, match="unit"):
        Unit.connect("a/b", "unix:///nowhere")
    with pytest.raises(StoreError):
        Unit.connect("FE", "unix:///nowhere")


def test_closing_ends_the_calls_of_other_threads_and_refuses_new_ones(unit: Units) -> None:
    frontend = unit("FE")
    lost: list[MufConnectionLost] = []

    def ask() -> None:
        try:
            frontend.request(b"x")
        except MufConnectionLost as error:
            lost.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while not frontend.statistics.calls:
        threading.Event().wait(0.01)
    frontend.close()
    frontend.close()
    asking.join(10)
    assert len(lost) == 1
    with pytest.raises(MufConnectionLost) as closed:
        frontend.request(b"x")
    assert closed.value.state_changed is False

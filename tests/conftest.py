"""Fixtures for every suite.

What needs a store asks for one of these, and then runs on an embedded-style Valkey always, and, as slow tests, on the
system's Redis 7 and on a real cluster of three primaries with replicas:

    pytestmark = pytest.mark.anyio
    async def test_something(store): ...              # an open, empty mpreg.store.Store
    def test_something(store_servers): ...            # .url, .call(...): the servers themselves, empty

They are shared by the tests of a worker process and emptied before each test, so nothing in them may be killed or
reconfigured for good: for that, a test starts its own (tests/store/servers.py).
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Iterator

import hypothesis
import pytest
from tests.store.servers import Cluster, Server, StoreServers, cluster, redis7, valkey

from mpreg.store import Store, connect

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell. Programs that tests start would inherit it, and not hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test depends on how fast this machine is at the moment.
hypothesis.settings.register_profile("mpreg", deadline=None)
hypothesis.settings.load_profile("mpreg")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(
    scope="session",
    params=[
        "valkey",
        pytest.param("redis7", marks=pytest.mark.slow),
        pytest.param("cluster", marks=pytest.mark.slow),
    ],
)
def _store_servers(request: pytest.FixtureRequest) -> Iterator[StoreServers]:
    kind: str = request.param
    with contextlib.ExitStack() as stack:
        made: Server | Cluster
        if kind == "valkey":
            made = stack.enter_context(valkey())
        elif kind == "redis7":
            made = stack.enter_context(redis7())
        else:
            made = stack.enter_context(cluster(primaries=3, replicas=1))
        yield StoreServers(kind, made)


@pytest.fixture
def store_servers(_store_servers: StoreServers) -> StoreServers:
    _store_servers.empty()
    return _store_servers


@pytest.fixture
async def store(store_servers: StoreServers) -> AsyncIterator[Store]:
    async with await connect(store_servers.url, name="test") as opened:
        yield opened

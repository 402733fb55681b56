"""Backends as processes that are killed and stopped: who finishes their requests, and who must not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.apps.muf.conftest import Units
from tests.apps.muf.peer import until_set
from tests.store.servers import StoreServers

from mpreg.apps.muf import MufTimeout, Request
from mpreg.apps.muf.claims import Asked, Claims, Policy, Taken
from mpreg.apps.muf.names import Name
from mpreg.store import Store

pytestmark = pytest.mark.anyio

NAMES = ("ONE", "TWO", "THREE")

WORKER = """
import asyncio, sys
from mpreg.apps.muf import Unit

async def main(url, name, claim):
    unit = await Unit.connect(name, url)

    @unit.on_request(group="G", claim=claim, lease_s=0.6, concurrency=4)
    async def work(request):
        await unit.store.command("RPUSH", "ran", f"{request.id}:{name}")
        if request.raw == b"hang" and await unit.store.command("INCR", "hung") == 1:
            await asyncio.Event().wait()
        return name.encode()

    await unit.ready()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def worker(url: str, name: str, claim: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", WORKER, url, name, claim], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            os.kill(process.pid, signal.SIGCONT)
            process.kill()


@contextmanager
def group(url: str, claim: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Three backends, by their names."""
    with ExitStack() as stack:
        found = {name: stack.enter_context(worker(url, name, claim)) for name in NAMES}
        for process in found.values():
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield found


async def ran(store: Store) -> list[tuple[str, str]]:
    """(id, backend), in the order of starting."""
    found = await store.command("LRANGE", "ran", 0, -1)
    return [tuple(line.decode().split(":")) for line in found]


@pytest.mark.parametrize("claim", ["once", "lease"])
async def test_three_backends_of_a_group_run_each_request_once(
    unit: Units, store: Store, store_servers: StoreServers, claim: str
) -> None:
    frontend = await unit("FE", codec="str")
    with group(store_servers.url, claim):
        answers = await asyncio.gather(*(frontend.request("x", id=str(n)) for n in range(300)))
    runs = await ran(store)
    assert dict(runs) == {str(n): answers[n] for n in range(300)}, "each is answered by who ran it"
    assert len(runs) == 300, "and nobody else did"


async def test_the_holder_of_a_lease_is_killed_and_another_finishes_the_request(
    unit: Units, store: Store, store_servers: StoreServers
) -> None:
    frontend = await unit("FE", codec="str")
    with group(store_servers.url, "lease") as backends:
        asking = asyncio.create_task(frontend.request("hang", id="1", ttl=30, timeout=30))
        await until_set(store, "hung")
        (_, holder), *_ = await ran(store)
        backends[holder].kill()
        finisher = await asking
    assert finisher != holder
    assert await ran(store) == [("1", holder), ("1", finisher)]


async def test_the_holder_of_a_claim_is_killed_and_nobody_runs_the_request_twice(
    unit: Units, store: Store, store_servers: StoreServers
) -> None:
    frontend = await unit("FE", codec="str")
    with group(store_servers.url, "once") as backends:
        asking = asyncio.create_task(frontend.request("hang", id="1", ttl=1, timeout=2))
        await until_set(store, "hung")
        (_, holder), *_ = await ran(store)
        backends[holder].kill()
        with pytest.raises(MufTimeout):
            await asking
        assert await frontend.request("x", id="2") != holder, "the others are there"
    assert [id for id, _ in await ran(store)] == ["1", "2"]


@pytest.mark.parametrize("claim", ["off", "once", "lease"])
async def test_a_stopped_backend_never_runs_a_request_that_expired_meanwhile(
    store: Store, store_servers: StoreServers, claim: str
) -> None:
    with worker(store_servers.url, "STOPPED", claim) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == b"ready\n"
        for n in range(3):
            os.kill(stopped.pid, signal.SIGSTOP)
            for at in range(5):
                await store.command("SET", f"MUF/FE/REQ/{n}.{at}", "x", "PX", 100)
            while any([await store.command("EXISTS", f"MUF/FE/REQ/{n}.{at}") for at in range(5)]):
                await asyncio.sleep(0.01)
            os.kill(stopped.pid, signal.SIGCONT)
            await store.command("SET", f"MUF/FE/REQ/new.{n}", "x", "EX", 10)
            assert await until_set(store, f"MUF/FE/RES/new.{n}") == b"STOPPED"
    assert [id for id, _ in await ran(store)] == ["new.0", "new.1", "new.2"]


@pytest.mark.parametrize("claim", ["off", "once", "lease"])
async def test_a_backend_that_is_stopped_with_a_request_in_its_hands_does_not_run_it_later(
    unit: Units, store: Store, monkeypatch: pytest.MonkeyPatch, claim: Policy
) -> None:
    take = Claims.take

    async def take_and_stop(self: Claims, request: Name, asked: Asked, again: bool = False) -> Taken:
        taken = await take(self, request, asked, again)
        while request.id == "old" and await store.command("EXISTS", request.key):
            await asyncio.sleep(0.01)
        return taken

    monkeypatch.setattr(Claims, "take", take_and_stop)
    ran: list[str] = []
    backend = await unit("BE")

    @backend.on_request(group="G", claim=claim)
    async def note(request: Request) -> None:
        ran.append(request.id)

    await backend.ready()
    await store.command("SET", "MUF/FE/REQ/old", "x", "PX", 150)
    while await store.command("EXISTS", "MUF/FE/REQ/old"):
        await asyncio.sleep(0.01)
    await store.command("SET", "MUF/FE/REQ/new", "x", "EX", 10)
    await until_set(store, "MUF/FE/RES/new")
    await backend.close()
    assert ran == ["new"]
    assert not await store.command("EXISTS", "MUF/FE/RES/old") + await store.command("EXISTS", "MUF/FE/ERR/old")

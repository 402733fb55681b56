"""What real clusters rarely do: nodes that contradict each other, or name servers that are not there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.store.echo import Echo, echo
from tests.store.servers import free_port

from mpreg.errors import StoreError
from mpreg.store import Script, Store, StoreLimits, connect
from mpreg.store.cluster import Cluster
from mpreg.store.slots import slot_of

pytestmark = pytest.mark.anyio
QUICK = StoreLimits(
    redirects_max=5,
    redirect_pause_s=0.001,
    backoff_min_s=0.001,
    backoff_max_s=0.01,
    down_wait_s=0.3,
    connect_timeout_s=1.0,
)
PATIENT = StoreLimits(redirect_pause_s=0.001, backoff_min_s=0.001, backoff_max_s=0.01, down_wait_s=30.0)
SLOT = slot_of(b"key")


class Node:
    """One node of a cluster that says what it is told to say."""

    def __init__(self, server: Echo) -> None:
        self.server = server
        self.says: dict[bytes, bytes] = {}
        """Answers by the name of the command; taken once for each time that they are listed."""
        self.owner: Node = self
        """Who serves all slots, as this node sees it."""
        server.answers = self._answer

    @property
    def port(self) -> int:
        return self.server.port

    def heard(self, name: bytes) -> int:
        return sum(command[0] == name for command in self.server.commands)

    def _answer(self, command: list[bytes]) -> bytes | None:
        if command[0] == b"CLUSTER":
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % self.owner.port
        return self.says.get(command[0])


@contextlib.asynccontextmanager
async def two_nodes(limits: StoreLimits) -> AsyncIterator[tuple[Node, Node, Store]]:
    """The first one serves all slots."""
    async with echo(tcp=True) as one, echo(tcp=True) as other:
        first, second = Node(one), Node(other)
        second.owner = first
        async with await connect(f"valkey+cluster://127.0.0.1:{one.port}", limits=limits) as store:
            yield first, second, store
        servers = store._servers
        assert isinstance(servers, Cluster)
        assert not servers._waiting
        assert not servers._detours


def moved(node: Node, verb: str = "MOVED") -> bytes:
    return f"-{verb} {SLOT} 127.0.0.1:{node.port}\r\n".encode()


async def refusal(future: asyncio.Future[object]) -> StoreError:
    with pytest.raises(StoreError) as refused:
        await future
    return refused.value


@pytest.mark.parametrize("verb", ["MOVED", "ASK"])
async def test_nodes_that_send_a_command_to_each_other_are_not_followed_for_ever(verb: str) -> None:
    async with two_nodes(QUICK) as (first, second, store):
        first.says[b"GET"], second.says[b"GET"] = moved(second, verb), moved(first, verb)
        error = await refusal(store.send("GET", "key"))
        assert (error.code, error.retryable, error.state_changed) == ("STORE_REDIRECTED", True, False)
        assert first.heard(b"GET") + second.heard(b"GET") == 1 + QUICK.redirects_max


async def test_a_slot_that_nobody_serves_is_waited_for_and_then_given_up() -> None:
    async with two_nodes(QUICK) as (first, _, store):
        first.says[b"GET"] = b"-CLUSTERDOWN Hash slot not served\r\n"
        error = await refusal(store.send("GET", "key"))
        assert (error.code, error.retryable, error.state_changed) == ("STORE_CLUSTER_DOWN", True, False)
        assert first.heard(b"GET") > 1


@pytest.mark.parametrize("says", [b"-CLUSTERDOWN The cluster is down\r\n", b"-TRYAGAIN in the midst of moving\r\n"])
async def test_what_is_over_soon_is_not_noticed(says: bytes) -> None:
    async with two_nodes(PATIENT) as (first, _, store):
        first.says[b"GET"] = says
        reading = store.send("GET", "key")
        while first.heard(b"GET") < 3:
            await asyncio.sleep(0)
        assert not reading.done()
        del first.says[b"GET"]
        assert await reading == b"OK"


async def test_a_server_that_is_named_and_not_there_is_left_when_the_others_know_better() -> None:
    async with two_nodes(PATIENT) as (first, _, store):
        first.says[b"GET"] = f"-MOVED {SLOT} 127.0.0.1:{free_port()}\r\n".encode()
        reading = store.send("GET", "key")
        while not first.heard(b"GET"):
            await asyncio.sleep(0)
        del first.says[b"GET"]
        assert await reading == b"OK"


async def test_a_server_that_is_named_without_its_host_is_on_the_host_that_named_it() -> None:
    async with two_nodes(PATIENT) as (first, second, store):
        first.says[b"GET"] = f"-MOVED {SLOT} :{second.port}\r\n".encode()
        assert await store.command("GET", "key") == b"OK"
        assert second.heard(b"GET") == 1


async def test_what_is_asked_for_elsewhere_comes_right_after_its_asking() -> None:
    script = Script.of("return 1")
    async with two_nodes(PATIENT) as (first, second, store):
        first.says[b"GET"] = first.says[b"EVALSHA"] = moved(second, "ASK")
        calls = [store.send("GET", "key") if n % 2 else store.send_script(script, ["key"]) for n in range(100)]
        assert await asyncio.gather(*calls) == [b"OK"] * 100
        names = [command[0] for command in second.server.commands if command[0] in (b"ASKING", b"GET", b"EVAL")]
        assert names[::2] == [b"ASKING"] * 100
        assert sorted(names[1::2]) == [b"EVAL"] * 50 + [b"GET"] * 50  # with its source: it has one attempt there


async def test_callers_who_are_cancelled_on_a_detour_leave_nothing_behind() -> None:
    async with two_nodes(PATIENT) as (first, second, store):
        first.says[b"GET"], second.says[b"GET"] = moved(second, "ASK"), b"-TRYAGAIN later\r\n"
        reading = [store.send("GET", "key") for _ in range(50)]
        while second.heard(b"GET") < 50:
            await asyncio.sleep(0)
        for future in reading:
            future.cancel()
        first.says.clear()
        assert await store.command("GET", "key") == b"OK"


async def test_a_store_that_is_closed_tells_those_on_a_detour() -> None:
    async with two_nodes(PATIENT) as (first, _, store):
        first.says[b"GET"] = b"-CLUSTERDOWN Hash slot not served\r\n"
        reading = store.send("GET", "key")
        while first.heard(b"GET") < 3:
            await asyncio.sleep(0)
        await store.close()
        assert (await refusal(reading)).code == "STORE_CLOSED"

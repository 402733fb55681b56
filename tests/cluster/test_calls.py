"""Calls across the nodes of a cluster: it does not matter which node a client asks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cluster.nodes import cluster, known_to, settings, until

from mpreg.client import command
from mpreg.errors import MpregError
from mpreg.node import Node
from mpreg.rpc import RpcLimits

pytestmark = pytest.mark.anyio


def node(name: str, **changes: Any) -> Node:
    return Node(name, settings(**changes))


def with_functions(name: str, *functions: str, locs: tuple[str, ...] = (), **changes: Any) -> Node:
    """Each function answers with the name of the node, and its argument."""
    made = node(name, **changes)
    for function in functions:

        def call(value: Any = None, at: str = name) -> list[Any]:
            return [at, value]

        made.function(name=function, locs=locs)(call)
    return made


async def test_any_node_can_be_asked_for_a_function_of_any_other() -> None:
    a, b, c = with_functions("a"), with_functions("b", "on_b"), with_functions("c", "on_c")
    async with cluster(a, b, c) as nodes:
        for asked in (a, b, c):
            client = await nodes.client(asked)
            assert await client.call("on_b", {"x": [1, 2.5, None]}) == ["b", {"x": [1, 2.5, None]}]
            assert await client.call("on_c", 7) == ["c", 7]


async def test_a_node_runs_its_own_function_itself() -> None:
    a, b = with_functions("a", "both"), with_functions("b", "both")
    async with cluster(a, b) as nodes:
        for asked in (a, b):
            client = await nodes.client(asked)
            assert {(await client.call("both"))[0] for _ in range(20)} == {asked.name}


async def test_while_it_has_no_room_others_run_it() -> None:
    a, b = node("a", rpc=RpcLimits(own_requests_max=1)), node("b")
    entered, release = asyncio.Event(), asyncio.Event()

    @a.function
    async def work() -> str:
        entered.set()
        await release.wait()
        return "a"

    @b.function(name="work")
    async def work_on_b() -> str:
        return "b"

    async with cluster(a, b) as nodes:
        client = await nodes.client(a)
        first = asyncio.create_task(client.call("work"))
        await entered.wait()
        assert await client.call("work") == "b"
        release.set()
        assert await first == "a"


async def test_no_node_has_the_function() -> None:
    async with cluster(node("a"), with_functions("b", "f", locs=("gpu",))) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        for call, code in [
            (client.call("nobody_has_this"), "RPC_FUNCTION_NOT_FOUND"),
            (client.call("f", locs=["tpu"]), "RPC_RESOURCE_NOT_FOUND"),
        ]:
            with pytest.raises(MpregError) as raised:
                await call
            assert raised.value.code == code


async def test_locs_choose_the_node_that_has_all_of_them() -> None:
    a = node("a")
    b = with_functions("b", "f", locs=("gpu",))
    c = with_functions("c", "f", locs=("gpu", "eu"))
    async with cluster(a, b, c) as nodes:
        client = await nodes.client(a)
        assert (await client.call("f", locs=["gpu", "eu"]))[0] == "c"
        assert {(await client.call("f", locs=["gpu"]))[0] for _ in range(40)} == {"b", "c"}


async def test_what_a_function_of_another_node_raises_comes_whole() -> None:
    b = node("b")

    @b.function
    def broken(text: str) -> None:
        raise LookupError(text)

    @b.function
    def typed(number: int) -> int:
        return number

    async with cluster(node("a"), b) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        with pytest.raises(MpregError) as raised:
            await client.call("broken", "so")
        assert (raised.value.code, raised.value.type, raised.value.message) == (
            "RPC_FUNCTION_FAILED",
            "LookupError",
            "so",
        )
        with pytest.raises(MpregError) as raised:
            await client.call("typed", "no number")
        assert (raised.value.code, raised.value.details["path"]) == ("RPC_INVALID_ARGUMENT", "args[0]")


async def test_commands_of_one_request_run_on_different_nodes_at_the_same_time() -> None:
    b, c = node("b"), node("c")
    meeting = asyncio.Barrier(2)

    @b.function
    async def left(x: int) -> int:
        await meeting.wait()
        return x + 1

    @c.function
    async def right(x: int) -> int:
        await meeting.wait()
        return x * 10

    @b.function
    async def join(x: int, y: dict[str, int]) -> list[int]:
        return [x, y["y"]]

    async with cluster(node("a"), b, c) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        one, other = command("left", 1), command("right", 2)
        assert await client.request(command("join", one, {"y": other}), timeout=10) == [2, 20]


async def test_cancelling_a_call_cancels_it_where_it_runs() -> None:
    b = node("b")
    entered, ended = asyncio.Event(), asyncio.Event()

    @b.function
    async def slow() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with cluster(node("a"), b) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        call = asyncio.create_task(client.call("slow"))
        await entered.wait()
        call.cancel()
        await asyncio.wait_for(ended.wait(), 10)
        assert await nothing_left(nodes.by_name.values())


async def test_a_deadline_travels_with_the_command() -> None:
    b = node("b")
    ended = asyncio.Event()

    @b.function
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with cluster(node("a"), b) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        with pytest.raises(MpregError) as raised:
            await client.call("slow", timeout=0.05)
        assert raised.value.code == "TIMEOUT_EXCEEDED"
        await asyncio.wait_for(ended.wait(), 10)
        assert await nothing_left(nodes.by_name.values())


async def test_a_client_that_goes_takes_its_calls_on_other_nodes_with_it() -> None:
    b = node("b")
    entered, ended = asyncio.Event(), asyncio.Event()

    @b.function
    async def slow() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with cluster(node("a"), b) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        call = asyncio.create_task(client.call("slow"))
        await entered.wait()
        await client.close()
        await asyncio.wait_for(ended.wait(), 10)
        with pytest.raises(MpregError):
            await call
        assert await nothing_left(nodes.by_name.values())


async def test_a_call_to_a_node_that_goes_is_lost_at_once_and_not_at_the_timeout() -> None:
    b = node("b")
    entered = asyncio.Event()

    @b.function
    async def slow() -> None:
        entered.set()
        await asyncio.Event().wait()

    async with cluster(node("a"), b) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        call = asyncio.create_task(client.call("slow", timeout=3600))
        await entered.wait()
        running = b._started()
        assert running.services.clustering is not None
        for link in list(running.services.clustering.cluster.links.nodes.values()):
            link.link.cut(MpregError("TEST", "killed"))
        with pytest.raises(MpregError) as raised:
            await asyncio.wait_for(call, 10)
        assert raised.value.code == "TRANSPORT_CONNECTION_LOST"
        assert raised.value.state_changed is None


async def test_an_idempotent_function_is_run_again_elsewhere_when_its_node_goes() -> None:
    b, c = node("b"), node("c")
    entered: list[str] = []
    first = asyncio.Event()

    def offer(to: Node) -> None:
        @to.function(idempotent=True)
        async def twice() -> str:
            entered.append(to.name)
            first.set()
            if len(entered) == 1:
                await asyncio.Event().wait()
            return to.name

    offer(b)
    offer(c)
    async with cluster(node("a"), b, c) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        call = asyncio.create_task(client.call("twice"))
        await first.wait()
        running = nodes.by_name[entered[0]]._started()
        assert running.services.clustering is not None
        for link in list(running.services.clustering.cluster.links.nodes.values()):
            link.link.cut(MpregError("TEST", "killed"))
        assert await asyncio.wait_for(call, 10) == ({"b", "c"} - {entered[0]}).pop()


async def test_a_node_that_drains_gets_no_new_call_and_finishes_those_it_has() -> None:
    b, c = node("b"), with_functions("c", "f")
    entered, release = asyncio.Event(), asyncio.Event()

    @b.function
    async def slow() -> str:
        entered.set()
        await release.wait()
        return "done"

    b.function(name="f")(lambda value=None: ["b", value])
    async with cluster(node("a"), b, c) as nodes:
        a = nodes.by_name["a"]
        client = await nodes.client(a)
        call = asyncio.create_task(client.call("slow"))
        await entered.wait()
        stopping = asyncio.create_task(b.stop(10))
        await until(lambda: a._started().services.in_cluster().cluster.links.nodes["b"].leaving)
        assert {(await client.call("f"))[0] for _ in range(20)} == {"c"}
        release.set()
        assert await call == "done"
        await stopping
        await until(lambda: known_to(a) == {"c"})


async def test_a_node_that_drains_does_not_wait_for_calls_whose_caller_has_gone() -> None:
    b = node("b")
    entered = asyncio.Event()

    @b.function
    async def slow() -> None:
        entered.set()
        await asyncio.Event().wait()

    async with cluster(node("a"), b) as nodes:
        a = nodes.by_name["a"]
        client = await nodes.client(a)
        call = asyncio.create_task(client.call("slow"))
        await entered.wait()
        stopping = asyncio.create_task(a.stop(3600))
        await until(lambda: a._started().services.rpc.is_draining)
        await client.close()
        with pytest.raises(MpregError):
            await call
        await asyncio.wait_for(stopping, 10)


async def test_mpreg_functions_tells_of_all_nodes_and_who_provides_what() -> None:
    async with cluster(with_functions("a", "f"), with_functions("b", "f", "g")) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        found = {each["name"]: sorted(each["providers"]) for each in await client.call("mpreg.functions")}
        assert (found["f"], found["g"], found["echo"]) == (["a", "b"], ["b"], ["a", "b"])


async def test_a_message_over_the_limit_between_nodes_is_told_to_the_caller() -> None:
    async with cluster(node("a"), with_functions("b", "f")) as nodes:
        client = await nodes.client(nodes.by_name["a"])
        with pytest.raises(MpregError) as raised:
            await client.call("f", "x" * 21_000_000)
        assert raised.value.code == "RESOURCE_MESSAGE_TOO_LARGE"
        assert len((await client.call("f", "x" * 8_000_000))[1]) == 8_000_000


async def nothing_left(nodes: Any) -> bool:
    for each in nodes:
        services = each._started().services
        await until(lambda services=services: len(services.rpc) == 0 and len(services.clustering.calls) == 0)
        assert services.rpc._open == {}
        assert len(services.deadlines) == 0
    return True


async def test_a_client_learns_where_the_other_nodes_are_and_goes_on_there() -> None:
    from mpreg.client import connect

    async with cluster(node("a"), with_functions("b", "f")) as nodes:
        a, b = nodes.by_name["a"], nodes.by_name["b"]
        async with connect(a.listeners["tcp"], discover_s=0.01) as client:
            await until(lambda: any(getattr(each, "url", "") == b.listeners["tcp"] for each in client._upkeep._sources))
            await a.stop(0)
            assert await client.call("f") == ["b", None]
            assert client.url == b.listeners["tcp"]


async def test_a_function_that_comes_while_the_node_runs_is_known_to_all() -> None:
    async with cluster(node("a"), node("b")) as nodes:
        client = await nodes.client(nodes.by_name["a"])

        @nodes.by_name["b"].function
        def later() -> str:
            return "here"

        placement = nodes.by_name["a"]._started().services.in_cluster().placement
        await until(lambda: placement.offers.has("later"))
        assert await client.call("later") == "here"

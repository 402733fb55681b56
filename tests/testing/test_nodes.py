"""Real nodes in virtual time: calls, topics, deaths, partitions, pauses, as with processes, in a moment."""

from __future__ import annotations

import asyncio

import pytest

from mpreg.errors import MpregError
from mpreg.testing import AWFUL, Conditions, Nodes, RuleBroken, simulate


async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "waited"


def slow_greet(name: str) -> str:
    return f"Hello, {name}, from a thread!"


async def three(nodes: Nodes) -> None:
    await nodes.start("a", greet, wait)
    await nodes.start("b")
    await nodes.start("c")
    await nodes.until(nodes.agreed)


def test_a_call_goes_to_the_node_that_has_the_function() -> None:
    async def program(nodes: Nodes) -> str:
        await three(nodes)
        async with nodes.client("c") as client:
            return str(await client.call("greet", "you"))

    assert simulate(program, seed=1) == "Hello, you!"


def test_an_hour_takes_a_moment() -> None:
    async def program(nodes: Nodes) -> float:
        await nodes.start("a", wait)
        async with nodes.client("a", timeout_s=4000) as client:
            assert await client.call("wait", 3600) == "waited"
        return nodes.now

    assert 3600 <= simulate(program, seed=1) < 3700


def test_functions_in_threads_are_waited_for() -> None:
    async def program(nodes: Nodes) -> str:
        await nodes.start("a", slow_greet)
        async with nodes.client("a") as client:
            return str(await client.call("slow_greet", "you"))

    assert simulate(program, seed=1) == "Hello, you, from a thread!"


def test_a_crash_is_heard_of_by_who_waits_and_noticed_by_all_and_survived() -> None:
    async def program(nodes: Nodes) -> None:
        await three(nodes)
        async with nodes.client("b") as client:
            waiting = asyncio.ensure_future(client.call("wait", 30))
            await asyncio.sleep(1)
            nodes.crash("a")
            with pytest.raises(MpregError) as failed:
                await waiting
            assert failed.value.code == "TRANSPORT_CONNECTION_LOST"
            await nodes.until(lambda: nodes.members("b")["a"] == nodes.members("c")["a"] == "dead", 30)
            await nodes.restart("a")
            await nodes.until(nodes.agreed, 30)
            assert await client.call("greet", "again") == "Hello, again!"

    simulate(program, seed=2)


def test_a_machine_that_is_gone_is_noticed_although_no_connection_ends() -> None:
    async def program(nodes: Nodes) -> float:
        await three(nodes)
        nodes.crash("a", silently=True)
        return await nodes.until(lambda: nodes.members("b")["a"] == "dead", 60)

    assert simulate(program, seed=3) > 1


def test_a_partition_heals() -> None:
    async def program(nodes: Nodes) -> None:
        await three(nodes)
        nodes.partition(["a"], ["b", "c"])
        await nodes.until(lambda: nodes.members("b")["a"] == "dead", 60)
        assert nodes.members("b")["c"] == "alive"
        nodes.heal()
        await nodes.until(nodes.agreed, 60)
        async with nodes.client("c") as client:
            assert await client.call("greet", "you") == "Hello, you!"

    simulate(program, seed=4)


def test_a_node_that_stands_still_is_held_for_dead_and_comes_back() -> None:
    async def program(nodes: Nodes) -> None:
        await three(nodes)
        nodes.pause("a")
        await nodes.until(lambda: nodes.members("b")["a"] == "dead", 60)
        nodes.resume("a")
        await nodes.until(nodes.agreed, 60)

    simulate(program, seed=5)


@pytest.mark.parametrize("conditions", [AWFUL, Conditions(delay_min_s=0.05, delay_max_s=0.1)], ids=["awful", "far"])
def test_topics_reach_every_node_whatever_the_network(conditions: Conditions) -> None:
    async def program(nodes: Nodes) -> list[int]:
        await three(nodes)
        nodes.conditions = conditions
        async with (
            nodes.client("b") as listener,
            nodes.client("c") as speaker,
            listener.subscribe("news.#") as news,
        ):
            for number in range(5):
                await speaker.publish("news.today", number, ack=True)
            return [(await anext(news)).payload for _ in range(5)]

    assert sorted(simulate(program, seed=6, conditions=Conditions())) == [0, 1, 2, 3, 4]


def test_the_same_seed_gives_the_same_run() -> None:
    async def program(nodes: Nodes) -> list[float]:
        await three(nodes)
        times = []
        async with nodes.client("b") as client:
            for _ in range(5):
                await client.call("greet", "you")
                times.append(nodes.now)
        nodes.crash("a")
        return [*times, await nodes.until(lambda: nodes.members("b")["a"] == "dead", 60)]

    assert simulate(program, seed=7) == simulate(program, seed=7)
    assert simulate(program, seed=7) != simulate(program, seed=8)


def test_what_goes_wrong_names_the_seed() -> None:
    async def program(nodes: Nodes) -> None:
        await nodes.until(lambda: False, 1)

    with pytest.raises(RuleBroken, match="seed 9"):
        simulate(program, seed=9)


def test_what_waits_for_nothing_is_told() -> None:
    async def program(nodes: Nodes) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuleBroken, match="nothing will ever happen"):
        simulate(program)
